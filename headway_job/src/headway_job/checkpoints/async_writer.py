"""Writes a checkpoint in a thread of its own, while the training goes on. One at a time."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import torch

from .catalog import Manifest, Shelf, folder_name
from .pause import Outcome
from .rank_group import Together
from .receipts import Written, packed, unpacked, write
from .stores.local import Receipt

_log = logging.getLogger("headway_job")
_FAILED, _COMPLETE, _UNSEEN = 0, 1, 2
_LOOK_S = 0.05
_NOT_SHARED = "not a shared folder? The folder must be seen by all nodes"
_LOOK_AGAIN_S = (0.2, 0.8, 3.0)
"""NFS keeps what it knows of a file for 3 s where nothing else is said (acregmin, nfs(5))."""


class Save:
    """What is known of a save when its writing begins. `state` is None where it could not be copied."""

    def __init__(self, number: int, step: int, seed: int, state: Optional[Dict[str, Any]], copy_s: float) -> None:
        self.number = number
        self.step = step
        self.seed = seed
        self.state = state
        self.copy_s = copy_s
        self.folder = folder_name(step, number)


class Saver:
    """Invariant: nothing that goes wrong with writing leaves this class; it is told on the log, and the save is none."""

    def __init__(self, shelf: Shelf, ranks: Together, ended: Callable[[Outcome], None]) -> None:
        """`ended` is told of every save, in the writing thread."""
        self._shelf = shelf
        self._ranks = ranks
        self._ended = ended
        self._problem = ""
        """Why the save that is being written will not be complete, as far as this rank knows."""
        self._thread: Optional[threading.Thread] = None
        self._unheard: List[Callable[[], bool]] = []
        """What this rank has told the others without a thread; each says whether all have heard it."""
        self._own_s: Optional[float] = None
        """When this rank's own part of the save was written, or given up."""
        self.saved_step: Optional[int] = None
        """Steps done at the newest checkpoint of this process that is known to be complete on all ranks."""

    @property
    def busy(self) -> bool:
        """Whether a save is being written."""
        self._unheard = [heard for heard in self._unheard if not heard()]
        return bool(self._unheard) or (self._thread is not None and self._thread.is_alive())

    def begin(self, save: Save) -> None:
        """On all ranks. Only while not busy. Raises what torch does where the other ranks cannot be told of a save that fails."""
        self._own_s = None
        thread = threading.Thread(target=self._write, args=(save,), name="headway-checkpoint", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            # Python and the system have limits on threads. The training goes on without this checkpoint.
            self._thread = None
            self._call_off(save, error)
        else:
            self._thread = thread

    def wait(self, most_s: Optional[float], others_s: Optional[float] = None) -> bool:
        """Whether the writing has ended by then. `others_s`: for other ranks, after this one's own part, no longer than that."""
        begun_s = time.monotonic()
        while self.busy:
            now_s, own_s = time.monotonic(), self._own_s
            if most_s is not None and now_s >= begun_s + most_s:
                break
            if others_s is not None and own_s is not None and now_s >= max(own_s, begun_s) + others_s:
                break
            self._pause(_LOOK_S if most_s is None else min(_LOOK_S, begun_s + most_s - now_s))
        return not self.busy

    def _pause(self, most_s: float) -> None:
        """Until the thread has ended, if there is one."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(most_s)
        else:
            time.sleep(most_s)

    def _call_off(self, save: Save, error: BaseException) -> None:
        """In the training thread, in two exchanges as in `_write`, for which it does not wait."""
        save.state, self._own_s = None, time.monotonic()
        problem = f"could not begin to write: {error}"
        _log.warning("Rank %d %s. No checkpoint of step %d.", self._ranks.rank, problem, save.step)
        try:
            told = (packed(self._ranks.rank, None), bytes([_FAILED]))
            self._unheard = [self._ranks.begin_exchange(data) for data in told]
        finally:
            self._ended(Outcome(save.step, problem))

    def _write(self, save: Save) -> None:
        begun_s = time.monotonic()
        self._problem = ""
        try:
            own = self._write_own(save)
            self._own_s = time.monotonic()
            told = self._ranks.exchange(packed(self._ranks.rank, own))
            receipts = [unpacked(rank, data) for rank, data in enumerate(told)]
            ended = _FAILED
            if self._ranks.rank == 0:
                ended = self._complete(save, receipts, time.monotonic() - begun_s)
            ended = self._ranks.exchange(bytes([ended]))[0][0]
            if ended == _COMPLETE:
                self.saved_step = save.step
            elif ended == _UNSEEN:
                self._problem = self._problem or f"rank 0 does not see all ranks' files: {_NOT_SHARED}"
                self._shelf.drop(save.folder)  # of which every node may have one
            else:
                self._problem = self._problem or f"{_who(receipts)} could not write"
        except Exception as error:
            # A rank that is gone, whatever way torch has of telling that: the training itself will notice.
            _log.warning("Checkpoint of step %d is not complete: %s", save.step, error)
            self._problem = f"not complete on all ranks: {error}"
        except BaseException as error:
            # A store's client that ends its thread: whoever stands still must hear of it.
            self._problem = f"the writing was ended by {type(error).__name__}"
            raise
        finally:
            self._ended(Outcome(save.step, self._problem))

    def _write_own(self, save: Save) -> Optional[Written]:
        state, save.state = save.state, None
        if state is None:
            self._problem = "could not copy the state"
            return None
        try:
            if self._ranks.rank == 0:
                self._shelf.tidy(before=save.number)
            self._shelf.store.make(save.folder)
            return write(self._shelf, save.folder, self._ranks.rank, state)
        except Exception as error:
            # A disk that is full, a store that cannot be reached, whatever an fsspec implementation raises.
            _log.warning(
                "Rank %d could not write its part of the checkpoint of step %d: %s", self._ranks.rank, save.step, error
            )
            self._problem = f"could not write: {error}"
            return None

    def _complete(self, save: Save, receipts: List[Optional[Written]], write_s: float) -> int:
        """On rank 0, when all ranks have written or failed to: how the save has ended."""
        try:
            if None in receipts:
                _log.warning(
                    "No checkpoint of step %d: %s could not write. Tried again when asked again.",
                    save.step,
                    _who(receipts),
                )
                self._shelf.drop(save.folder)
                return _FAILED
            unseen = self._unseen(save.folder, receipts)
            if unseen is not None:
                self._problem = f"rank {unseen}'s file is not seen by rank 0: {_NOT_SHARED}"
                _log.warning("No checkpoint of step %d in %s: %s.", save.step, self._shelf.store.where, self._problem)
                return _UNSEEN
            self._shelf.write_manifest(save.folder, _manifest(save, receipts, write_s))
        except Exception as error:
            # As above.
            _log.warning("No checkpoint of step %d: %s. Tried again when asked again.", save.step, error)
            self._problem = f"could not write: {error}"
            return _FAILED
        try:
            self._shelf.tidy(before=save.number)
        except Exception as error:
            # As above; the checkpoint stands.
            _log.warning("Older checkpoints could not be removed: %s", error)
        _log.info("Checkpoint of step %d written in %.2f s.", save.step, write_s)
        return _COMPLETE

    def _unseen(self, folder: str, receipts: List[Optional[Written]]) -> Optional[int]:
        """A rank whose files are not all there for this one, with their sizes."""
        for pause_s in (*_LOOK_AGAIN_S, None):
            missing = [
                rank
                for rank, written in enumerate(receipts)
                for name, receipt in (written or {}).items()
                if self._shelf.store.size_bytes(folder, name) != receipt.size_bytes
            ]
            if not missing:
                return None
            if pause_s is not None:
                time.sleep(pause_s)
        return missing[0]


def _who(receipts: List[Optional[Written]]) -> str:
    """Ranks that have not written; where all have, it is rank 0, which writes the manifest."""
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
