"""Communication between the ranks of a run: small numbers, over gloo groups of our own. The training's groups are not used.

The training thread uses one group and the writing thread the other. In each group, all ranks make the same calls in the same order.
A rank that can no longer do so leaves: by `leave`, or by the end of its process.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import Any, Callable, List, Optional, Protocol, Sequence, Set, Tuple

import torch

from ...hook.save_requests import MAX_PAUSE_S
from ..errors import Refused
from .descriptors import make_room
from .gloo_group import GlooGroup, Operation
from .meeting import meeting, training_timeout_s

_MAX_APART_S = MAX_PAUSE_S + 600.0
"""Ranks end a pause at most MAX_PAUSE_S apart. The ten minutes, torch's own timeout for NCCL, are for what they do besides."""
_WRITING_S = 7200.0
_POLL_S = 0.005


class RankGroup(Protocol):
    """The ranks of a run. If a rank has ended, calls raise at once; if it does not answer, they raise after a time."""

    rank: int
    world_size: int

    def launch(self, values: Sequence[int]) -> Any:
        """Begin to compute the maximum of each value over all ranks. The result is for `result`."""

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:
        """Wait for it, at most so long. Raises TimeoutError, and RuntimeError if a rank is gone."""

    def exchange(self, data: bytes) -> List[bytes]:
        """Return each rank's bytes, all of the same length; in the writing thread."""

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:
        """Begin an exchange whose result this rank does not need; the returned function says if it is over.

        Only while no thread is writing.
        """

    def leave(self, *, writing: bool) -> None:
        """Call `launch` no more, nor `exchange` if `writing`; ranks that wait for this one are informed. Never raises."""

    def settle(self) -> None:
        """Release the groups; all ranks have made their last call."""


class SingleRank:
    """A run of one process."""

    rank = 0
    world_size = 1

    def launch(self, values: Sequence[int]) -> Any:
        """Return its own values."""
        return list(values)

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:  # noqa: ARG002 - see RankGroup
        """Return the values of `launch`."""
        found: List[int] = launched
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """Return its own bytes."""
        return [data]

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:  # noqa: ARG002 - see RankGroup
        """Return a function that says that the exchange is over."""
        return lambda: True

    def leave(self, *, writing: bool) -> None:
        """Do nothing: no other rank waits."""

    def settle(self) -> None:
        """Do nothing: there is no group."""


class GlooRanks:
    """The ranks of torch.distributed's default group."""

    def __init__(self) -> None:
        """Create the groups; on all ranks. Raises Refused."""
        import torch.distributed as dist

        self._dist = dist
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        with meeting(waits=True):
            make_room(self.world_size)
        self._training = GlooGroup(dist, max(_MAX_APART_S, training_timeout_s(dist)))
        self._writing = GlooGroup(dist, _WRITING_S)
        self._pid = os.getpid()
        _unsettled.add(self)
        atexit.register(_keep_unsettled)
        self._broken = False
        """The last call of `launch` or `result` failed: a gloo group cannot be used after an error."""

    def launch(self, values: Sequence[int]) -> Any:
        """Begin the computation. Takes tens of microseconds, and does not wait."""
        if self._broken:
            raise RuntimeError("the ranks can no longer communicate")
        self._broken = True  # unless the call succeeds
        numbers = torch.tensor(list(values), dtype=torch.int64, device="cpu")
        work = self._dist.all_reduce(numbers, self._dist.ReduceOp.MAX, group=self._training.group, async_op=True)
        launched = numbers, self._training.started(work, [numbers])
        self._broken = False
        return launched

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:
        """Wait for the slowest rank's `launch`."""
        numbers, operation = launched
        if most_s is not None:
            until_s = time.monotonic() + most_s
            while not operation.completed:
                if time.monotonic() >= until_s:
                    raise TimeoutError(f"the other ranks did not reach this point within {most_s:.0f} s")
                time.sleep(_POLL_S)
        try:
            operation.wait()
        except RuntimeError:
            self._broken = True
            raise
        found: List[int] = numbers.tolist()
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """Return each rank's bytes; in the writing thread."""
        others, operation = self._gather(data)
        while not operation.completed:
            time.sleep(_POLL_S)  # not in C++, where the process would abort if the program ends meanwhile
        operation.wait()
        return [bytes(other.tolist()) for other in others]

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:
        """Begin an exchange, which needs no Python thread."""
        _, operation = self._gather(data)
        return operation.drop

    def leave(self, *, writing: bool) -> None:
        """Make other ranks' exchanges raise, also those in progress; and their `result`, if they cannot be informed in one."""
        if self._broken:
            self._training.destroy()
        if writing:
            self._writing.destroy()

    def settle(self) -> None:
        """Leave the groups to the program's `destroy_process_group`."""
        if all([self._training.release(), self._writing.release()]):
            _unsettled.discard(self)

    def keep_at_exit(self) -> None:
        """Keep what gloo's threads may still hold: after the end of Python they could not free it."""
        if os.getpid() == self._pid:
            self._training.keep()
            self._writing.keep()

    def _gather(self, data: bytes) -> Tuple[List[Any], Operation]:
        own = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
        others = [torch.empty_like(own) for _ in range(self.world_size)]
        work = self._dist.all_gather(others, own, group=self._writing.group, async_op=True)
        return others, self._writing.started(work, [own, *others])


_unsettled: Set[GlooRanks] = set()
"""Bound: the runs that were not closed, or whose last operation has no answer."""


def _keep_unsettled() -> None:
    for ranks in list(_unsettled):
        ranks.keep_at_exit()


def join_ranks() -> RankGroup:
    """Return the ranks, if torch.distributed is in use; on all ranks."""
    import torch.distributed as dist

    used = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return GlooRanks() if used else SingleRank()


def max_over_ranks(ranks: RankGroup, *values: int) -> List[int]:
    """Return the maximum of each value over all ranks, and wait for all of them; while a run is set up. Raises Refused."""
    try:
        return ranks.result(ranks.launch(values))
    except RuntimeError as error:
        raise Refused(
            f"Another rank has not called headway_job.checkpoint, or has ended ({error}). Call it on all ranks. If that rank has "
            "ended, its own log says why."
        ) from error
