"""Checkpoints of a training script, in three lines: see docs/checkpoints.md of Headway.

    run = headway_job.checkpoint(model=model, optimizer=optimizer)
    for step in run.steps(10_000):
        ...

Unlike the rest of this package this is called by the script, on purpose. So it tells the script what it was given wrong, with
Refused, at once; later, in the middle of the training, it raises nothing.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
import zlib
from typing import Any, Dict, Iterator, Optional, Union

import torch

from ..hook import process as presence
from .async_writer import Save, Saver
from .catalog import Shelf, Store
from .errors import Refused
from .exception_origin import ends_the_program, is_ours, on_its_way
from .pause import Standing
from .rank_group import Alone, Together, meet, most
from .restore import Found, newest_sound, put_back
from .save_agreement import Agreement, Parted
from .state.state_dict import Parts
from .stores.location import open_store
from .trigger import Asked, listen

_log = logging.getLogger("headway_job")
_EXIT_WAIT_S = 600.0
_OTHERS_WAIT_S = 60.0
"""After an exception: for other ranks, which may never begin to write what this one has written."""
_MEET_S = 30.0
"""For other ranks at the end of the run, beyond what they may wait for writing."""


class Run:
    """A training run that can be saved and resumed. On all ranks, every method is called at the same steps.

    Invariant: all ranks save at the same boundaries, and a save is a checkpoint on all ranks or on none.
    """

    def __init__(
        self,
        ranks: Together,
        shelf: Shelf,
        parts: Parts,
        every_s: Optional[float],
        every_steps: Optional[int],
        seed: int,
    ) -> None:
        self.asked = Asked()
        """Who wants a checkpoint says it here, in any thread."""
        self.start = 0
        """The number of the first step to do: 0, or where the restored checkpoint left off."""
        self._ranks = ranks
        self._parts = parts
        self._every_s = every_s
        self._every_steps = every_steps or 0
        self._seed = seed
        self._where = shelf.store.where
        self._found: Optional[Found] = None
        self._standing = Standing(presence.orders(), ranks.rank, ranks.world_size, self.asked.ask)
        self._saver = Saver(shelf, ranks, self._standing.ended)
        self._agreement = Agreement(ranks, self._wanted, lambda: self._saver.busy, self._standing.terms)
        self._alone = isinstance(ranks, Alone)
        self._next = 0
        self._boundary = 0
        self._number = 1
        self._saved_s = time.monotonic()
        self._closed = False
        self._given_up = False
        self._pid = os.getpid()
        self._handled = sys.exc_info()[1]
        """An exception that the program was handling before it trained."""

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps still to do, up to `total`. Between two steps it saves when that was asked for."""
        self._handled = sys.exc_info()[1]
        if self._found is not None:
            self._found.put_rng_back(self._ranks.rank)
        for number in range(self.start, total):
            yield number
            self.step(number)
        self.close()

    def step(self, number: Optional[int] = None) -> None:
        """The step of that number (from 0; the one after the last where not said) is done."""
        self._next = (self._next if number is None else number) + 1
        self._boundary += 1
        if self._agreement.left:
            return
        if self._every_steps and self._next % self._every_steps == 0:
            self.asked.ask()
            self._exchange(now=True)
        elif self._boundary >= self._agreement.due or (self._alone and self.asked.pending):
            self._exchange(now=self._alone)

    def save(self) -> None:
        """Asks for a checkpoint, on any rank: it is saved at one of the next boundaries."""
        self.asked.ask()

    @property
    def saved_step(self) -> Optional[int]:
        """Steps done at the newest complete checkpoint that this process wrote or was restored from."""
        return self._saver.saved_step

    @property
    def restored(self) -> bool:
        """Whether a checkpoint was restored."""
        return self._found is not None

    def close(self, most_s: float = _EXIT_WAIT_S) -> None:
        """The training is over: saves once more if that was asked for, and waits so long for what is being written.

        Before torch.distributed is taken down. `steps` calls it. Where an exception is on its way out, as in a `finally`, other
        ranks may never come to their end: nothing is begun any more, and they are told.
        """
        if self._closed:
            return
        self._closed = True
        self._standing.close()
        until_s = time.monotonic() + most_s
        raised = on_its_way(self._handled)
        if raised:
            self._leave()
        elif not self._agreement.left:
            self._save_at_the_end(until_s)
        self._wait(max(until_s - time.monotonic(), 0.0), _OTHERS_WAIT_S if raised else None)
        if not self._saver.busy and not self._agreement.left:
            self._ranks.settle()

    def _exchange(self, *, now: bool) -> None:
        """Raises nothing of ours: if the ranks cannot agree, the training goes on without checkpoints."""
        try:
            if self._agreement.at(self._boundary, now=now):
                self._begin_save(*self._agreement.terms)
                self._standing.stand_still()
            self._agreement.go_on(self._boundary)
        except BaseException as error:
            # This rank would be a boundary behind the others from here on, whatever it was.
            self._call_off(error)
            if not is_ours(error):
                raise

    def _save_at_the_end(self, until_s: float) -> None:
        """Where one of the ranks wants to."""
        try:
            if not self._agreement.end(until_s + _MEET_S):
                return
            self._wait(until_s - time.monotonic())
            if self._agreement.may_begin(until_s + _MEET_S):
                self._begin_save(0, 0)
            else:
                _log.warning("The last checkpoint that was asked for is not saved: one is still being written.")
        except BaseException as error:
            self._call_off(error)
            if not is_ours(error):
                raise

    def _call_off(self, error: BaseException) -> None:
        """This run saves no more: told once, on all ranks, as `_agreement.left` is."""
        why = str(error).split("\n", maxsplit=1)[0] if is_ours(error) else f"{type(error).__name__} was raised"
        matters = not self._closed or self._standing.wanted or self.asked.pending
        self._standing.call_off(f"the run saves no more: {why}")
        if matters:
            _log.warning("After step %d this run saves no more checkpoints: %s", self._next, why)
        if not isinstance(error, Parted):
            self._leave()

    def _leave(self) -> None:
        self._agreement.leave()
        self._ranks.leave(writing=not self._saver.busy)

    def _wanted(self) -> bool:
        """Time is rank 0's."""
        if self._every_s is not None and self._ranks.rank == 0 and time.monotonic() - self._saved_s >= self._every_s:
            self.asked.ask()
        return self.asked.pending or self._standing.wanted

    def _begin_save(self, still_ms: int, key: int) -> None:
        self._saver.wait(None)  # busy only at the very end; all ranks wait alike
        self.asked.answered()
        self._standing.begun(self._next, still_ms, key)
        begun_s = self._saved_s = time.monotonic()
        state: Optional[Dict[str, Any]] = None
        try:
            state = self._parts.copy(self._ranks.rank)
        except Exception as error:
            # Memory that is not there, or what a user's object raises: the training goes on without this checkpoint.
            _log.warning("The state at step %d could not be copied: %s", self._next, error)
        self._saver.begin(Save(self._number, self._next, self._seed, state, time.monotonic() - begun_s))
        self._number += 1

    def _at_exit(self) -> None:
        """The program may have left out `close`, or an exception has."""
        self._wait(_EXIT_WAIT_S, _OTHERS_WAIT_S if ends_the_program() else None)

    def _wait(self, most_s: float, others_s: Optional[float] = None) -> None:
        """Once more at the end of the program, if nobody has given up before."""
        if os.getpid() == self._pid and not self._given_up and not self._saver.wait(max(most_s, 0.0), others_s):
            self._given_up = True
            _log.warning("A checkpoint was still being written at the end of the run: it is given up.")

    def _restore(self, found: Optional[Found], number: int) -> None:
        self._number = number
        self._found = found
        if found is not None:
            put_back(found, self._parts, self._ranks)
            self.start = self._next = found.manifest.step
            self._saver.saved_step = found.manifest.step
            _log.info("Restored %s: step %d is next.", found.folder, self.start)
        elif self._ranks.rank == 0 and os.environ.get("SLURM_RESTART_COUNT", "0").strip("0"):
            _log.warning("The job was started again, and %s has no checkpoint: the run begins at step 0.", self._where)
        self._standing.register(self.start)


def checkpoint(
    url: Union[str, Store, None] = None,
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    name: Optional[str] = None,
    every_s: Optional[float] = None,
    every_steps: Optional[int] = None,
    keep: int = 2,
    **others: Any,
) -> Run:
    """Restores what there is to restore, and gives the run, which saves when it is asked. On all ranks. Raises Refused.

    `url`: the run's own folder; where not given, one by the job's id. `name`: tells runs of one job apart, instead of the script's
    name. `others`: whatever has state_dict and load_state_dict, and goes with the run; each rank keeps its own.
    """
    if keep < 1 or (every_steps is not None and every_steps < 1) or (every_s is not None and not every_s > 0):
        raise Refused("keep and every_steps are at least 1, every_s is more than 0.")
    parts = Parts({"model": model, "optimizer": optimizer, "scheduler": scheduler, **others})
    ranks = meet()
    _check_alike(parts, zlib.crc32(repr((every_steps, keep, sorted(others))).encode()), ranks)
    store = open_store(url, name, alone=isinstance(ranks, Alone)) if url is None or isinstance(url, str) else url
    shelf = Shelf(store, keep)
    run = Run(ranks, shelf, parts, every_s, every_steps, torch.initial_seed() % (1 << 62))
    found = newest_sound(shelf, ranks)
    (number,) = most(ranks, shelf.next_number() if ranks.rank == 0 else 0)
    run._restore(found, number)
    listen(run.asked)
    atexit.register(run._at_exit)
    return run


def _check_alike(parts: Parts, options: int, ranks: Together) -> None:
    """Rank 0 keeps the names of what is sharded; `options` stands for what was asked. Raises Refused on all ranks or on none."""
    largest, smallest, high, low = most(ranks, parts.signature, -parts.signature, options, -options)
    if high != -low:
        raise Refused(
            "The ranks give headway_job.checkpoint different options. every_steps, keep and the names of the objects have to be "
            "the same on all: else one rank saves while another trains on."
        )
    if largest != -smallest:
        raise Refused(
            "The ranks have models with different tensors, of which some are sharded. headway_job.checkpoint saves models "
            "that have the same tensors on all ranks; use torch.distributed.checkpoint in the script."
        )
