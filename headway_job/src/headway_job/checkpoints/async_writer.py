"""Writes a checkpoint in a thread of its own, while the training goes on. One at a time."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import torch

from ..job_log import log
from .catalog import Catalog, Manifest, folder_name
from .ranks.pause import SaveOutcome
from .ranks.rank_group import RankGroup
from .receipts import Written, decode, encode, prepare, write
from .stores.base import Receipt

_FAILED, _COMPLETE, _INVISIBLE = 0, 1, 2
_POLL_S = 0.05
_NOT_SHARED = "not a shared folder? All nodes must see the same folder"
_LOOK_AGAIN_S = (0.2, 0.8, 3.0)
"""NFS caches a file's attributes for 3 s by default (acregmin, nfs(5))."""


class Save:
    """The facts of a save when its writing begins. `state` is None if it could not be copied."""

    def __init__(self, number: int, step: int, seed: int, state: Optional[Dict[str, Any]], copy_s: float) -> None:
        self.number = number
        self.step = step
        self.seed = seed
        self.state = state
        self.copy_s = copy_s
        self.folder = folder_name(step, number)

    def take_state(self) -> Optional[Dict[str, Any]]:
        """Return the state, and keep no reference to it: it takes as much memory as the model."""
        state, self.state = self.state, None
        return state


class AsyncWriter:
    """Invariant: no error of writing leaves this class; it is logged, and that save counts as failed.

    A log that hangs delays a save by no more than a moment (`job_log`).
    """

    def __init__(self, catalog: Catalog, ranks: RankGroup, ended: Callable[[SaveOutcome], None]) -> None:
        """`ended` is called at the end of each save, in the writing thread."""
        self._catalog = catalog
        self._ranks = ranks
        self._ended = ended
        self._problem = ""
        """Why the current save will not be complete, as far as this rank knows; empty = no reason known."""
        self._own = False
        """The problem is this rank's own failure."""
        self._thread: Optional[threading.Thread] = None
        self._exchanges: List[Callable[[], bool]] = []
        """Exchanges that this rank began without a thread; each function says if all ranks have taken part.
        Bound: the two of one save."""
        self._own_end_s: Optional[float] = None
        """When this rank's own part of the save was written, or failed."""
        self._pid = os.getpid()
        self._given_up = False
        """The end of the run or of the program has waited long enough."""
        self.saved_step: Optional[int] = None
        """Steps done at the newest checkpoint of this process that is known to be complete on all ranks."""

    @property
    def busy(self) -> bool:
        """True while a save is being written."""
        self._exchanges = [over for over in self._exchanges if not over()]
        return bool(self._exchanges) or (self._thread is not None and self._thread.is_alive())

    def note_restored(self, step: int) -> None:
        """Note the checkpoint from which the run was restored: it is complete on all ranks."""
        self.saved_step = step

    def begin(self, save: Save) -> None:
        """Begin to write, on all ranks, only while not busy. Raises torch's errors if it cannot report a failure to others."""
        self._own_end_s = None
        thread = threading.Thread(target=self._write, args=(save,), name="headway-checkpoint", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            # Python and the operating system limit the number of threads. The training goes on without this checkpoint.
            self._thread = None
            self._report_failure(save, error)
        else:
            self._thread = thread

    def wait(self, most_s: Optional[float], others_s: Optional[float] = None) -> bool:
        """Wait for the end of the writing, and return True if it has ended.

        `others_s`: how long to wait for other ranks at most, after this rank's own part.
        """
        begun_s = time.monotonic()
        while self.busy:
            now_s, own_end_s = time.monotonic(), self._own_end_s
            if most_s is not None and now_s >= begun_s + most_s:
                break
            if others_s is not None and own_end_s is not None and now_s >= max(own_end_s, begun_s) + others_s:
                break
            self._wait_for_thread(_POLL_S if most_s is None else min(_POLL_S, begun_s + most_s - now_s))
        return not self.busy

    def wait_at_end(self, most_s: float, others_s: Optional[float] = None) -> None:
        """Wait at the end of the run or of the program, unless an earlier call has given up. In a forked child, return at once."""
        if self._pid == os.getpid() and not self._given_up and not self.wait(max(most_s, 0.0), others_s):
            self._given_up = True
            log(logging.WARNING, "A checkpoint was still being written when the run ended, and will not be complete.")

    def _wait_for_thread(self, most_s: float) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(most_s)
        else:
            time.sleep(most_s)

    def _report_failure(self, save: Save, error: BaseException) -> None:
        """Inform the other ranks, in the training thread: in two exchanges as in `_write`, without waiting for them."""
        save.take_state()
        self._own_end_s = time.monotonic()
        problem = f"could not begin to write: {error}"
        log(
            logging.WARNING,
            "Rank %d %s. There is no checkpoint of step %d; the training goes on.",
            self._ranks.rank,
            problem,
            save.step,
        )
        try:
            messages = (encode(self._ranks.rank, None), bytes([_FAILED]))
            self._exchanges = [self._ranks.begin_exchange(data) for data in messages]
        finally:
            self._ended(SaveOutcome(save.step, problem, own=True))

    def _write(self, save: Save) -> None:
        begun_s = time.monotonic()
        self._problem, self._own = "", False
        try:
            own = self._write_own(save)
            self._own_end_s = time.monotonic()
            messages = self._ranks.exchange(encode(self._ranks.rank, own))
            self._conclude(save, [decode(rank, data) for rank, data in enumerate(messages)], begun_s)
        except Exception as error:
            # A rank is gone, in whatever way torch reports it. The training itself will notice it, too.
            log(logging.WARNING, "The checkpoint of step %d is not complete: %s", save.step, error)
            self._problem, self._own = f"not complete on all ranks: {error}", False
        except BaseException as error:
            # A store's client that ends its thread: a rank that pauses must be informed.
            self._problem = f"the writing was ended by {type(error).__name__}"
            raise
        finally:
            self._ended(SaveOutcome(save.step, self._problem, own=self._own))

    def _conclude(self, save: Save, receipts: List[Optional[Written]], begun_s: float) -> None:
        """Complete the checkpoint on rank 0, and let all ranks know how the save ended."""
        ended = _FAILED
        if self._ranks.rank == 0:
            ended = self._complete(save, receipts, time.monotonic() - begun_s)
        ended = self._ranks.exchange(bytes([ended]))[0][0]
        if ended == _COMPLETE:
            self.saved_step = save.step
        elif ended == _INVISIBLE:
            self._problem = self._problem or f"rank 0 does not see all ranks' files: {_NOT_SHARED}"
            self._catalog.drop(save.folder)  # each node may have one
        else:
            self._problem = self._problem or f"{_failed_ranks(receipts)} could not write"

    def _write_own(self, save: Save) -> Optional[Written]:
        state = save.take_state()
        if state is None:
            self._problem, self._own = "could not copy the state", True
            return None
        try:
            prepared = prepare(state)  # before anything is written or removed
            if self._ranks.rank == 0:
                self._catalog.tidy(before=save.number)
            self._catalog.store.make(save.folder)
            return write(self._catalog, save.folder, self._ranks.rank, prepared)
        except Exception as error:
            # The disk is full, or the store cannot be reached. An fsspec implementation may raise anything.
            log(
                logging.WARNING,
                "Rank %d could not write its part of the checkpoint of step %d: %s",
                self._ranks.rank,
                save.step,
                error,
            )
            self._problem, self._own = f"could not write: {error}", True
            return None

    def _complete(self, save: Save, receipts: List[Optional[Written]], write_s: float) -> int:
        """Write the manifest, on rank 0, when all ranks have written or failed; return how the save has ended."""
        try:
            if None in receipts:
                log(
                    logging.WARNING,
                    "There is no checkpoint of step %d: %s could not write. The training goes on, and the next save tries again.",
                    save.step, _failed_ranks(receipts),
                )  # fmt: skip
                self._catalog.drop(save.folder)
                return _FAILED
            invisible = self._first_invisible(save.folder, receipts)
            if invisible is not None:
                self._problem, self._own = f"rank 0 does not see the file of rank {invisible}: {_NOT_SHARED}", True
                log(
                    logging.WARNING,
                    "There is no checkpoint of step %d in %s: %s.",
                    save.step,
                    self._catalog.store.where,
                    self._problem,
                )
                return _INVISIBLE
            self._catalog.write_manifest(save.folder, _manifest(save, receipts, write_s))
        except Exception as error:
            # As above.
            log(
                logging.WARNING,
                "There is no checkpoint of step %d: %s. The training goes on, and the next save tries again.",
                save.step,
                error,
            )
            self._problem, self._own = f"could not write: {error}", True
            return _FAILED
        try:
            self._catalog.tidy(before=save.number)
        except Exception as error:
            # As above; the checkpoint itself is complete.
            log(logging.WARNING, "Older checkpoints could not be removed: %s", error)
        log(logging.INFO, "The checkpoint of step %d was written in %.2f s.", save.step, write_s)
        return _COMPLETE

    def _first_invisible(self, folder: str, receipts: List[Optional[Written]]) -> Optional[int]:
        """Return the first rank whose files are not all visible to this one with their sizes; None = there is none."""
        for pause_s in (*_LOOK_AGAIN_S, None):
            missing = [
                rank
                for rank, written in enumerate(receipts)
                for name, receipt in (written or {}).items()
                if self._catalog.store.size_bytes(folder, name) != receipt.size_bytes
            ]
            if not missing:
                return None
            if pause_s is not None:
                time.sleep(pause_s)
        return missing[0]


def _failed_ranks(receipts: List[Optional[Written]]) -> str:
    """Return the ranks that have not written; if all have, it is rank 0, which writes the manifest."""
    missing = ", ".join(str(rank) for rank, receipt in enumerate(receipts) if receipt is None)
    return f"rank {missing or 0}"


def _manifest(save: Save, receipts: List[Optional[Written]], write_s: float) -> Manifest:
    files: Dict[str, Receipt] = {}
    for written in receipts:
        files.update(written or {})
    return Manifest(
        step=save.step,
        world_size=len(receipts),
        seed=save.seed,
        torch=str(torch.__version__),
        saved_at_s=time.time(),
        copy_s=save.copy_s,
        write_s=write_s,
        files=files,
    )
