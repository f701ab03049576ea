"""Communication between the ranks of a run: small numbers, over gloo groups of our own. The training's groups are not used.

The training thread uses one group and the writing thread the other. In each group, all ranks make the same calls in the same order.
A rank that can no longer do so leaves: by `leave`, or by the end of its process.
"""

from __future__ import annotations

import ctypes
import datetime
import time
from contextlib import suppress
from typing import Any, Callable, List, Optional, Protocol, Sequence

import torch

from ...hook.save_requests import MAX_PAUSE_S
from ..errors import Refused

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


class _Group:
    """A gloo group of our own.

    Invariant: it is destroyed only while no operation is in progress in it. torch would wait for an operation without an answer,
    which would delay `destroy_process_group` and the end of the process. So an extra reference is held, which neither of them can
    drop.
    """

    def __init__(self, dist: Any, most_s: float) -> None:
        self._dist = dist
        self._works: List[Any] = []
        try:
            self._group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=most_s))
        except Exception as error:
            # The host name belongs to no interface, the interface does not exist, or this torch has no gloo.
            raise Refused(
                "The ranks cannot connect to each other over gloo, which headway_job.checkpoint uses besides the training's own "
                f"process group: {error}. Set GLOO_SOCKET_IFNAME, on all ranks, to the network interface over which the nodes "
                "reach each other, such as eth0."
            ) from error
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
        self._held = True

    @property
    def group(self) -> Any:
        """The group for torch's calls. Raises RuntimeError after `destroy`, as None would be the training's own group."""
        if self._group is None:
            raise RuntimeError("this rank has left")
        return self._group

    def started(self, work: Any) -> Any:
        """Note that an operation is in progress, and return it."""
        self._works = [*self._in_progress(), work]
        return work

    def release(self) -> bool:
        """Allow torch to destroy the group, if no operation is in progress; return True if that is so."""
        if self._held and not self._in_progress():
            self._works, self._held = [], False
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._group))
        return not self._held

    def destroy(self) -> None:
        """Destroy the group, which other ranks notice as a rank that is gone. Does nothing during an operation. Never raises."""
        if self._group is None or not self.release():
            return
        group, self._group = self._group, None
        try:
            self._dist.destroy_process_group(group)
        except Exception:
            pass  # ValueError, AssertionError: the program has destroyed it already

    def _in_progress(self) -> List[Any]:
        return [work for work in self._works if not work.is_completed()]


class GlooRanks:
    """The ranks of torch.distributed's default group."""

    def __init__(self) -> None:
        """Create the groups; on all ranks."""
        import torch.distributed as dist

        self._dist = dist
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._training = _Group(dist, max(_MAX_APART_S, _training_timeout_s(dist)))
        self._writing = _Group(dist, _WRITING_S)
        self._broken = False
        """The last call of `launch` or `result` failed: a gloo group cannot be used after an error."""

    def launch(self, values: Sequence[int]) -> Any:
        """Begin the computation. Takes tens of microseconds, and does not wait."""
        if self._broken:
            raise RuntimeError("the ranks can no longer communicate")
        self._broken = True  # unless the call succeeds
        numbers = torch.tensor(list(values), dtype=torch.int64, device="cpu")
        work = self._dist.all_reduce(numbers, self._dist.ReduceOp.MAX, group=self._training.group, async_op=True)
        launched = numbers, self._training.started(work)
        self._broken = False
        return launched

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:
        """Wait for the slowest rank's `launch`."""
        numbers, work = launched
        if most_s is not None:
            until_s = time.monotonic() + most_s
            while not work.is_completed():
                if time.monotonic() >= until_s:
                    raise TimeoutError(f"the other ranks did not reach this point within {most_s:.0f} s")
                time.sleep(_POLL_S)
        try:
            work.wait()
        except RuntimeError:
            self._broken = True
            raise
        found: List[int] = numbers.tolist()
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """Return each rank's bytes; in the writing thread."""
        others, work = self._gather(data)
        work.wait()
        return [bytes(other.tolist()) for other in others]

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:
        """Begin an exchange, which needs no Python thread."""
        _, work = self._gather(data)
        return lambda: bool(work.is_completed())

    def leave(self, *, writing: bool) -> None:
        """Make other ranks' exchanges raise, also those in progress; and their `result`, if they cannot be informed in one."""
        if self._broken:
            self._training.destroy()
        if writing:
            self._writing.destroy()

    def settle(self) -> None:
        """Leave the groups to the program's `destroy_process_group`."""
        self._training.release()
        self._writing.release()

    def _gather(self, data: bytes) -> Any:
        own = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
        others = [torch.empty_like(own) for _ in range(self.world_size)]
        return others, self._writing.started(
            self._dist.all_gather(others, own, group=self._writing.group, async_op=True)
        )


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


def _training_timeout_s(dist: Any) -> float:
    """Return how long the training's own collectives wait for a rank; 0 if torch does not say."""
    found = 0.0
    for device in ("cpu", "cuda"):
        with suppress(Exception):  # there is no such backend, or this torch has no such names
            backend = dist.group.WORLD._get_backend(torch.device(device))
            found = max(found, backend.options._timeout.total_seconds())
    return found
