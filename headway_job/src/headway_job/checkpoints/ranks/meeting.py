"""The meeting of all ranks at `headway_job.checkpoint`, in the store of torch.distributed, before groups of our own are created.

torch waits for all ranks of a new group without a word. So the ranks first note in the store that they are here. A rank that waits
says so, and which ranks are missing; and it waits for a bounded time. A rank that cannot take part notes why, and the others raise
that at once.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import Any, Iterator, List, Optional

import torch

from ... import job_log
from ..errors import Refused

_SAY_AFTER_S = 30.0
_MOST_S = 1800.0
"""Other ranks may prepare data for minutes. If the timeout of the training's default group is longer, that holds."""
_FIRST_POLL_S, _LONGEST_POLL_S = 0.005, 0.25
_WORD_RANKS = 32
"""Ranks of a number in the store, which has 64 bits. So the missing ones of thousands are known after a few requests."""
_MOST_PARTS = 10
_MOST_CHARS = 1000
_COMPLETE = b"complete"
_CANNOT = "A rank cannot take part: "

_calls = 0
"""Meetings of this process so far. All ranks make the same calls in the same order, as for torch's groups."""


class Meeting:
    """One call of `headway_job.checkpoint`.

    Invariant: the first outcome in the store holds for all ranks: that the meeting is complete, or why there is none.
    """

    def __init__(self, store: Any, number: int, rank: int, world_size: int) -> None:
        self._store = store
        self._prefix = f"headway_job/checkpoint/{number}"
        self._rank = rank
        self._world_size = world_size

    def wait(self, say_after_s: float, most_s: float) -> None:
        """Wait for all ranks. Raises Refused, which names the ranks that are missing."""
        begun_s = time.monotonic()
        try:
            arrived = self._arrive()
        except Exception:
            return  # a store without these calls: torch waits instead
        if arrived == self._world_size:
            self._decide(_COMPLETE)
        pause_s, said = _FIRST_POLL_S, False
        while not self._over():
            waited_s = time.monotonic() - begun_s
            if waited_s >= most_s:
                self._give_up(most_s)
            if waited_s >= say_after_s and not said:
                said = True
                self._say(waited_s)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_POLL_S)

    def refuse(self, reason: str) -> None:
        """Let the other ranks raise, as this one does. Never raises."""
        with suppress(Exception):
            self._decide(f"{_CANNOT}rank {self._rank}: {reason}"[:_MOST_CHARS].encode(errors="backslashreplace"))

    def missing(self) -> List[int]:
        """Return the ranks that are not here yet."""
        words = [
            self._store.add(f"{self._prefix}/ranks/{word}", 0)
            for word in range((self._world_size + _WORD_RANKS - 1) // _WORD_RANKS)
        ]
        return [rank for rank in range(self._world_size) if not words[rank // _WORD_RANKS] >> rank % _WORD_RANKS & 1]

    def _arrive(self) -> int:
        """Note that this rank is here. Return how many are."""
        self._store.add(f"{self._prefix}/ranks/{self._rank // _WORD_RANKS}", 1 << self._rank % _WORD_RANKS)
        return int(self._store.add(f"{self._prefix}/arrived", 1))

    def _decide(self, outcome: bytes) -> bytes:
        """Note the outcome, and return the one that holds."""
        return bytes(self._store.compare_set(f"{self._prefix}/outcome", "", outcome.decode()))

    def _over(self) -> bool:
        """Return True if the meeting is complete. Raises Refused if it cannot be."""
        key = f"{self._prefix}/outcome"
        try:
            outcome = bytes(self._store.get(key)) if self._store.check([key]) else b""
        except Exception as error:
            raise Refused(
                "The ranks cannot meet in headway_job.checkpoint: the store of torch.distributed does not answer "
                f"({error}). The rank that keeps it, usually rank 0, may have ended; its own log says why."
            ) from error
        if outcome in (b"", _COMPLETE):
            return outcome == _COMPLETE
        raise Refused(outcome.decode(errors="replace"))

    def _give_up(self, most_s: float) -> None:
        """Note that ranks are missing, unless the last one has come at this moment; the next look at the outcome raises."""
        with suppress(Exception):  # the store is gone, at which the next look raises, too
            reason = (
                f"headway_job.checkpoint was not called on all ranks within {most_s / 60:.3g} minutes: {_names(self.missing())} "
                f"of {self._world_size} ranks did not call it. Call it on all ranks, also on those that do not write. If a rank "
                "has ended, its own log says why. If it needs more time before the call, give init_process_group a longer timeout."
            )
            self._decide(reason[:_MOST_CHARS].encode())

    def _say(self, waited_s: float) -> None:
        """Write a line to the job's log: by one rank of each node, and by the lowest of those that wait."""
        with suppress(Exception):
            missing = self.missing()
            lowest = next(rank for rank in range(self._world_size) if rank not in missing)
            local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", ""))
            if missing and (self._rank == lowest or local == "0"):
                job_log.write_line(
                    f"rank {self._rank} waits in headway_job.checkpoint since {waited_s:.0f} s for {_names(missing)} of "
                    f"{self._world_size} ranks, which have not called it yet; it must be called on all ranks"
                )


def next_meeting(dist: Any) -> Optional[Meeting]:
    """Return the meeting of this call of `headway_job.checkpoint`; None = this torch has no store. On all ranks, once a call."""
    global _calls  # noqa: PLW0603 - the ranks of a process meet in one order
    _calls += 1
    try:
        store = dist.distributed_c10d._get_default_store()
    except Exception:
        return None  # another torch, which lacks the function
    return None if store is None else Meeting(store, _calls, dist.get_rank(), dist.get_world_size())


@contextmanager
def meeting(*, waits: bool) -> Iterator[None]:
    """Have errors of the body raised on all ranks. With `waits`, all ranks meet after it; otherwise only an error is noted.

    Without torch.distributed, and with one rank, nothing is done.
    """
    import torch.distributed as dist

    used = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    try:
        yield
    except Exception as error:
        found = next_meeting(dist) if used else None
        if found is not None:
            found.refuse(str(error) or type(error).__name__)
        raise
    if used and waits:
        found = next_meeting(dist)
        if found is not None:
            found.wait(_SAY_AFTER_S, max(_MOST_S, training_timeout_s(dist)))


def training_timeout_s(dist: Any) -> float:
    """Return how long the training's own collectives wait for a rank; 0 if torch does not say."""
    found = 0.0
    for device in ("cpu", "cuda"):
        with suppress(Exception):  # there is no such backend, or this torch has no such names
            backend = dist.group.WORLD._get_backend(torch.device(device))
            found = max(found, backend.options._timeout.total_seconds())
    return found


def _names(ranks: List[int]) -> str:
    """Return the ranks as text, with ranges, and the number of those that are left out."""
    parts: List[List[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in parts]
    more = f" and more, {len(ranks)} in all" if len(texts) > _MOST_PARTS else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(texts[:_MOST_PARTS])}{more}"
