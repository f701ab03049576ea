"""Checkpoints of a training script, in three lines; see docs/checkpoints.md of Headway.

    run = headway_job.checkpoint(model=model, optimizer=optimizer)
    for step in run.steps(10_000):
        ...

Unlike the rest of this package, this module is called by the script itself. So `checkpoint` raises Refused if the script gave it
something wrong, and `steps` if it is called after the end of the run; otherwise, nothing is raised during the training.
"""

from __future__ import annotations

import logging
import operator
import os
import sys
import time
from typing import Any, Dict, Iterator, Optional, Sequence, Union

import torch

from .. import job_log
from ..hook import process
from . import earlier_job, equal_ranks, program_end, registered_names
from .async_writer import AsyncWriter, Save
from .catalog import Catalog
from .errors import Refused
from .exception_origin import is_propagating, raised_by_us
from .ranks.meeting import meeting
from .ranks.pause import PauseControl
from .ranks.rank_group import RankGroup, SingleRank, join_ranks, max_over_ranks
from .ranks.save_agreement import RankLeft, SaveAgreement
from .ranks.trigger import SaveTrigger, install_signal_handler
from .restore import PROGRAM, STOP, LoadedCheckpoint, Resumed, StopNote, restore_into
from .run_folder import open_run_folder
from .state.state_dict import StatefulObjects
from .stores import node_local
from .stores.base import Store
from .stores.location import warn_of_relative

_log = logging.getLogger("headway_job")
_END_MEETING_S = 30.0
"""Time for other ranks to reach the end of the run, in addition to the time for writing."""
_SECOND_LOOP = (
    "run.steps({1}) was called after the end of the run: the loop before has ended it after {0} steps (or run.close() has), and "
    "nothing more would be saved. Make one loop of the two: for step in run.steps({1}), with epoch = step // steps_per_epoch. For "
    "loops of your own, do not use run.steps: begin at run.start, call run.step(number) after each step, and run.close() once, "
    "after the last."
)


class Run:
    """A training run that can be saved and resumed. On all ranks, each method is called at the same steps.

    Invariant: all ranks save at the same boundaries, and a save is a checkpoint on all ranks or on none. A log that hangs holds up
    no exchange between them (`job_log`).
    """

    def __init__(
        self,
        ranks: RankGroup,
        catalog: Catalog,
        objects: StatefulObjects,
        every_s: Optional[float],
        every_steps: Optional[int],
        seed: int,
        program: str = "",
    ) -> None:
        """`program`: digest of the program that trains."""
        self.trigger = SaveTrigger()
        """Takes requests for a checkpoint, in any thread."""
        self.start = 0
        """Number of the first step to do: 0, or the step after the restored checkpoint."""
        self._ranks = ranks
        self._objects: Optional[StatefulObjects] = objects
        """None once the run saves no more: a run that has ended keeps no model."""
        self._every_s = every_s
        self._every_steps = every_steps or 0
        self._seed = seed
        self._program = program
        self._where = catalog.store.where
        self._resumed: Optional[Resumed] = None
        self._pauses = PauseControl(process.save_requests(), ranks.rank, ranks.world_size, self.trigger.request)
        self._writer = AsyncWriter(catalog, ranks, self._pauses.save_ended)
        self._agreement = SaveAgreement(ranks, self._wanted, lambda: self._writer.busy, self._pauses.terms)
        self._single_rank = isinstance(ranks, SingleRank)
        self._next = 0
        self._boundary = 0
        self._number = 1
        self._saved_s = time.monotonic()
        self._closed = False
        self._late = False
        """A step was made after the end of the run, and that was logged."""
        self._misnumbered = False
        """A number of a step was none, and that was logged."""
        self._pid = os.getpid()
        self._handled_before = sys.exc_info()[1]
        """An exception that the program was handling before it trained."""

    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the steps still to do, up to `total`. Between two steps it saves if that was requested.

        Its end is that of the run. A second loop, after one that a `break` or an exception has left, continues at the step that was
        left. Raises Refused if steps remain and the run has ended: they would be made without saves.
        """
        self._handled_before = sys.exc_info()[1]
        if self._closed and self._next < total:
            raise Refused(_SECOND_LOOP.format(self._next, total))
        if self._resumed is not None and not self._boundary:
            self._resumed.restore_rng(self._ranks.rank)
        for number in range(self._next, total):
            yield number
            self.step(number)
        self.close()

    def step(self, number: Optional[int] = None) -> None:
        """Note that the step with that number is done (counted from 0; by default the one after the last).

        What is no number of a step counts as the default, with one warning: no checkpoint could be named by it.
        """
        self._next = self._number_of_step(number) + 1
        self._boundary += 1
        self._pauses.stepped = True
        if self._objects is None or self._agreement.left or self._is_forked:
            self._note_late_step()
            return
        if self._pauses.waits:
            self._settle()
        if self._every_steps and self._next % self._every_steps == 0:
            self.trigger.request()
            self._exchange(now=True)
        elif self._boundary >= self._agreement.due or (self._single_rank and self.trigger.pending):
            self._exchange(now=self._single_rank)

    def _number_of_step(self, number: Any) -> int:
        """Return the number as an int, also one of NumPy, which a manifest could not have."""
        if number is None:
            return self._next
        try:
            step = operator.index(number)
        except TypeError:
            step = -1
        if step >= 0:
            return step
        if not self._misnumbered:
            self._misnumbered = True
            job_log.log(
                logging.WARNING,
                "run.step: %r is no number of a step, so it counts as the step after the last. Give an integer, from 0.",
                number,
            )
        return self._next

    def save(self) -> None:
        """Request a checkpoint, on any rank: it is saved at one of the next step boundaries."""
        self.trigger.request()

    @property
    def saved_step(self) -> Optional[int]:
        """Steps done at the newest complete checkpoint that this process wrote or was restored from; None = there is none."""
        return self._writer.saved_step

    @property
    def restored(self) -> bool:
        """True if a checkpoint was restored."""
        return self._resumed is not None

    def close(self, most_s: float = program_end.EXIT_WAIT_S) -> None:
        """End the training: save once more if that was requested, and wait at most `most_s` for what is being written.

        Call it before torch.distributed is shut down; `steps` calls it. While an exception propagates, as in a `finally`, other
        ranks may never reach their end. Then no save begins, and they are informed.
        """
        if self._closed or self._is_forked:
            return
        self._closed = True
        self._pauses.close()
        until_s = time.monotonic() + most_s
        raised = is_propagating(self._handled_before)
        if raised:
            self._leave()
        elif not self._agreement.left:
            self._save_at_the_end(until_s)
        self._writer.wait_at_end(until_s - time.monotonic(), program_end.OTHERS_WAIT_S if raised else None)
        if not self._writer.busy and not self._agreement.left:
            self._ranks.settle()
        self._objects = self._handled_before = None

    @property
    def _is_forked(self) -> bool:
        """True in a child of this process, to which neither the run nor the connections to other ranks belong."""
        return os.getpid() != self._pid

    def _note_late_step(self) -> None:
        """Say once that the run was closed before its last step."""
        if self._closed and not self._late and not self._is_forked:
            self._late = True
            job_log.log(
                logging.WARNING,
                "Step %d was made after run.close(), which ends the run: nothing more is saved. Call it after the last step.",
                self._next,
            )

    def _settle(self) -> None:
        """Pause if other runs of this process have saved since this one has. Raises as `_exchange` does."""
        try:
            self._pauses.settle()
        except BaseException as error:
            self._stop_saving(error)
            if not raised_by_us(error):
                raise

    def _exchange(self, *, now: bool) -> None:
        """Save if the ranks agree to. Raises none of our errors: if they cannot agree, the training goes on without checkpoints."""
        try:
            if self._agreement.at(self._boundary, now=now):
                self._begin_save(*self._agreement.terms)
                self._pauses.pause_training()
            self._agreement.go_on(self._boundary)
        except BaseException as error:
            # Whatever it was, this rank would be a boundary behind the others from here on.
            self._stop_saving(error)
            if not raised_by_us(error):
                raise

    def _save_at_the_end(self, until_s: float) -> None:
        """Save once more if a rank wants to."""
        try:
            if not self._agreement.end(until_s + _END_MEETING_S):
                return
            self._writer.wait_at_end(until_s - time.monotonic())
            if self._agreement.may_begin(until_s + _END_MEETING_S):
                self._begin_save(0, 0)
            else:
                job_log.log(
                    logging.WARNING,
                    "The last checkpoint that was requested is not saved: another one is still being written.",
                )
        except BaseException as error:
            self._stop_saving(error)
            if not raised_by_us(error):
                raise

    def _stop_saving(self, error: BaseException) -> None:
        """Save no more in this run. It is logged once, on all ranks, since `_agreement.left` becomes true on all."""
        why = str(error).split("\n", maxsplit=1)[0] if raised_by_us(error) else f"{type(error).__name__} was raised"
        matters = not self._closed or self._pauses.wanted or self.trigger.pending
        self._objects = None
        self._pauses.stop_saving(f"the run saves no more: {why}")
        if matters:
            job_log.log(
                logging.WARNING,
                "After step %d this run saves no more checkpoints: %s. The training itself goes on.",
                self._next, why,
            )  # fmt: skip
        if not isinstance(error, RankLeft):
            self._leave()

    def _leave(self) -> None:
        self._agreement.leave()
        self._ranks.leave(writing=not self._writer.busy)

    def _wanted(self) -> bool:
        """Return True if this rank wants a save. For saves by time, rank 0's clock counts."""
        if self._every_s is not None and self._ranks.rank == 0 and time.monotonic() - self._saved_s >= self._every_s:
            self.trigger.request()
        return self.trigger.pending or self._pauses.wanted

    def _begin_save(self, pause_ms: int, key: int) -> None:
        assert self._objects is not None, "only a run that has not ended saves"
        self._writer.wait(None)  # it is busy only at the end of the run, where all ranks wait
        self.trigger.clear()
        self._pauses.save_began(self._next, pause_ms, key)
        begun_s = self._saved_s = time.monotonic()
        state: Optional[Dict[str, Any]] = None
        try:
            state = self._objects.copy(self._ranks.rank)
            if self._ranks.rank == 0:
                state[PROGRAM] = self._program
                if self._pauses.stop_reason:
                    state[STOP] = StopNote(self._pauses.stop_reason, _job_id(), _restarts()).encode()
        except Exception as error:
            # There is too little memory, or a user's object raises: the training goes on without this checkpoint.
            job_log.log(
                logging.WARNING,
                "There is no checkpoint of step %d, as the state could not be copied: %s",
                self._next, error,
            )  # fmt: skip
        self._writer.begin(Save(self._number, self._next, self._seed, state, time.monotonic() - begun_s))
        self._number += 1

    def _restore(
        self, loaded: Optional[LoadedCheckpoint], objects: StatefulObjects, number: int, optional: Sequence[str]
    ) -> None:
        self._number = number
        restarts = _restarts()
        if loaded is not None:
            self._resumed = restore_into(loaded, objects, self._ranks, optional)
            self.start = self._next = self._resumed.step
            self._writer.note_restored(self._resumed.step)
            _log.info("Restored checkpoint %s: step %d is next.", loaded.folder, self.start)
            if self._ranks.rank == 0:
                self._log_restored(loaded, restarts)
        elif self._ranks.rank == 0 and restarts:
            _log.warning(
                "Slurm has started this job again, but there is no checkpoint in %s: the run begins at step 0.",
                self._where,
            )
        self._pauses.register(self.start)

    def _log_restored(self, loaded: LoadedCheckpoint, restarts: int) -> None:
        job_log.write_line(job_log.restored_line(self.start, f"{loaded.where}/{loaded.folder}"))
        if loaded.program not in ("", self._program):
            job_log.write_line(job_log.OTHER_PROGRAM_LINE)
        if not restarts:
            return
        stop = loaded.stop
        if stop is not None and (stop.job_id, stop.restarts) == (_job_id(), restarts - 1):
            job_log.write_line(job_log.stopped_line(self.start, restarts, stop.why, loaded.manifest.saved_at_s))
        ranks, before = self._ranks.world_size, loaded.manifest.world_size
        job_log.write_line(job_log.again_line(self.start, restarts + 1, ranks, before))


def _job_id() -> str:
    """Return Slurm's id of the job; empty outside of Slurm."""
    return os.environ.get("SLURM_JOB_ID", "")


def _restarts() -> int:
    """Return how often Slurm has started this job again; 0 outside of Slurm."""
    count = os.environ.get("SLURM_RESTART_COUNT", "0")
    return int(count) if count.isdecimal() else 0


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
    continue_from: Optional[str] = None,
    optional: Union[str, Sequence[str]] = (),
    **others: Any,
) -> Run:
    """Restore the newest checkpoint, if there is one, and return the run, which saves on request. On all ranks. Raises Refused.

    `url`: the run's own folder; by default, one that is named by the job's id. `name`: distinguishes runs of one job, instead of
    the script's name and its arguments. `continue_from`: another job's id, folder or URL, whose newest checkpoint is restored if
    this run has none; by default, the variable HEADWAY_CONTINUE_FROM. `optional`: names of objects that the checkpoint may lack, or
    that the run may leave out; any other difference between the names is refused. `others`: objects with state_dict and
    load_state_dict that are saved with the run; each rank keeps its own.
    """
    with meeting(waits=False):
        if keep < 1 or (every_steps is not None and every_steps < 1) or (every_s is not None and not every_s > 0):
            raise Refused("headway_job.checkpoint: keep and every_steps must be at least 1, and every_s more than 0.")
        optional = registered_names.as_names(optional)
        objects = StatefulObjects({"model": model, "optimizer": optimizer, "scheduler": scheduler, **others})
    ranks = join_ranks()
    source = earlier_job.wanted(continue_from)
    objects.divided, objects.least_own_bytes = equal_ranks.check(
        objects.signatures, (every_steps, keep, source, optional), ranks
    )
    objects.most_ranks = ranks.world_size
    if ranks.rank == 0:
        warn_of_relative(url, os.environ)
    store, program = open_run_folder(url, name, ranks)
    if ranks.rank == 0:
        node_local.warn(store.where, os.environ)
    catalog = Catalog(store, keep)
    run = Run(ranks, catalog, objects, every_s, every_steps, torch.initial_seed() % (1 << 62), program.digest)
    loaded = earlier_job.load_own_or_earlier(catalog, source, name, ranks, program.digest)
    (number,) = max_over_ranks(ranks, catalog.next_number() if ranks.rank == 0 else 0)
    run._restore(loaded, objects, number, optional)
    install_signal_handler(run.trigger)
    program_end.wait_for(run._writer)
    return run
