"""What the ranks of a run tell each other: small numbers, over gloo groups of our own, so that nothing of the training is touched.

The training thread uses one group and the writing thread the other; in each, all ranks make the same calls in the same order.
A rank that can do so no longer leaves: by `leave`, or by its end.
"""

from __future__ import annotations

import ctypes
import datetime
import time
from contextlib import suppress
from typing import Any, Callable, List, Optional, Protocol, Sequence

import torch

from ..hook.save_requests import MOST_STILL_S
from .errors import Refused

_APART_S = MOST_STILL_S + 600.0
"""Ranks that stand still go on so far apart at most; ten minutes more, torch's own patience with NCCL, for what they do besides."""
_WRITING_S = 7200.0
_LOOK_S = 0.005


class Together(Protocol):
    """The ranks of a run. One that has ended is met with at once, by what is raised; one that is silent, after a time."""

    rank: int
    world_size: int

    def launch(self, values: Sequence[int]) -> Any:
        """Begins to work out the largest of each place's numbers over all ranks. For `result`."""

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:
        """Waits for it, so long at most. Raises TimeoutError, and RuntimeError where a rank is gone."""

    def exchange(self, data: bytes) -> List[bytes]:
        """In the writing thread: each rank's bytes, which are equally many."""

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:
        """An exchange of which this rank wants nothing but to be told whether it is over. While no thread is writing."""

    def leave(self, *, writing: bool) -> None:
        """Calls `launch` no more, nor `exchange` where `writing`; ranks that wait for this one's are told. Never raises."""

    def settle(self) -> None:
        """All is over, on all ranks."""


class Alone:
    """A run of one process."""

    rank = 0
    world_size = 1

    def launch(self, values: Sequence[int]) -> Any:
        """Begins."""
        return list(values)

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:  # noqa: ARG002 - see Together
        """Ends."""
        found: List[int] = launched
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """Its own."""
        return [data]

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:  # noqa: ARG002 - see Together
        """Nobody waits."""
        return lambda: True

    def leave(self, *, writing: bool) -> None:
        """Nobody waits."""

    def settle(self) -> None:
        """Nothing is held."""


class _Group:
    """A gloo group of our own.

    Invariant: it is taken down only while nothing is under way in it. torch would wait for what is not answered, holding up
    `destroy_process_group` and the end of the process; so a reference is kept that neither of them can drop.
    """

    def __init__(self, dist: Any, most_s: float) -> None:
        self._dist = dist
        self._works: List[Any] = []
        try:
            self._group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=most_s))
        except Exception as error:
            # A host name that stands for no interface, an interface that is not there, a torch without gloo.
            raise Refused(
                f"The ranks cannot meet over gloo, which headway_job.checkpoint does beside the training's own group: {error}. Set "
                "GLOO_SOCKET_IFNAME, on all ranks, to the network interface over which the nodes reach each other, such as eth0."
            ) from error
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
        self._held = True

    @property
    def group(self) -> Any:
        """For calls. None would be the training's own."""
        if self._group is None:
            raise RuntimeError("this rank has left")
        return self._group

    def begun(self, work: Any) -> Any:
        """It is under way."""
        self._works = [*self._under_way(), work]
        return work

    def let_go(self) -> bool:
        """Whoever drops it may take it down, if nothing is under way; whether that is so."""
        if self._held and not self._under_way():
            self._works, self._held = [], False
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._group))
        return not self._held

    def cut(self) -> None:
        """Takes it down, which other ranks meet as a rank that is gone. Nothing where something is under way. Never raises."""
        if self._group is None or not self.let_go():
            return
        group, self._group = self._group, None
        try:
            self._dist.destroy_process_group(group)
        except Exception:
            pass  # ValueError, AssertionError: the program has destroyed it already

    def _under_way(self) -> List[Any]:
        return [work for work in self._works if not work.is_completed()]


class Ranks:
    """The ranks of torch.distributed's default group."""

    def __init__(self) -> None:
        """On all ranks."""
        import torch.distributed as dist

        self._dist = dist
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._training = _Group(dist, max(_APART_S, _own_patience_s(dist)))
        self._writing = _Group(dist, _WRITING_S)
        self._broken = False
        """The last call of `launch` or `result` went wrong: gloo's groups do not mend."""

    def launch(self, values: Sequence[int]) -> Any:
        """Begins. Costs tens of microseconds, and waits for nobody."""
        if self._broken:
            raise RuntimeError("the ranks cannot meet any more")
        self._broken = True  # unless all goes well
        numbers = torch.tensor(list(values), dtype=torch.int64, device="cpu")
        work = self._dist.all_reduce(numbers, self._dist.ReduceOp.MAX, group=self._training.group, async_op=True)
        launched = numbers, self._training.begun(work)
        self._broken = False
        return launched

    def result(self, launched: Any, most_s: Optional[float] = None) -> List[int]:
        """Waits for the slowest rank's `launch`."""
        numbers, work = launched
        if most_s is not None:
            until_s = time.monotonic() + most_s
            while not work.is_completed():
                if time.monotonic() >= until_s:
                    raise TimeoutError(f"the other ranks have not come within {most_s:.0f} s")
                time.sleep(_LOOK_S)
        try:
            work.wait()
        except RuntimeError:
            self._broken = True
            raise
        found: List[int] = numbers.tolist()
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """In the writing thread."""
        others, work = self._gather(data)
        work.wait()
        return [bytes(other.tolist()) for other in others]

    def begin_exchange(self, data: bytes) -> Callable[[], bool]:
        """Is under way without a thread of Python's."""
        _, work = self._gather(data)
        return lambda: bool(work.is_completed())

    def leave(self, *, writing: bool) -> None:
        """Other ranks' exchanges raise, those that are under way too; their meetings where they cannot be told in one."""
        if self._broken:
            self._training.cut()
        if writing:
            self._writing.cut()

    def settle(self) -> None:
        """The groups are left to the program's `destroy_process_group`."""
        self._training.let_go()
        self._writing.let_go()

    def _gather(self, data: bytes) -> Any:
        own = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
        others = [torch.empty_like(own) for _ in range(self.world_size)]
        return others, self._writing.begun(self._dist.all_gather(others, own, group=self._writing.group, async_op=True))


def meet() -> Together:
    """The ranks, if torch.distributed is in use; on all ranks."""
    import torch.distributed as dist

    return Ranks() if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 else Alone()


def most(ranks: Together, *values: int) -> List[int]:
    """The largest of each place's numbers over all ranks. Waits for all of them; while a run is set up. Raises Refused."""
    try:
        return ranks.result(ranks.launch(values))
    except RuntimeError as error:
        raise Refused(
            f"Another rank has not come to headway_job.checkpoint, or is gone ({error}). Call it on all ranks; that rank's own log "
            "says what became of it."
        ) from error


def _own_patience_s(dist: Any) -> float:
    """How long the training's own collectives wait for a rank; 0 where torch does not tell."""
    found = 0.0
    for device in ("cpu", "cuda"):
        with suppress(Exception):  # there is no such backend, or this torch has no such names
            backend = dist.group.WORLD._get_backend(torch.device(device))
            found = max(found, backend.options._timeout.total_seconds())
    return found
