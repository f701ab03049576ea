"""What the ranks of a run tell each other: small numbers, over gloo groups of our own, so that nothing of the training is touched.

The training thread uses one group and the writing thread the other; in each, all ranks make the same calls in the same order.
"""

from __future__ import annotations

import datetime
from typing import Any, List, Protocol, Sequence

import torch

_NEVER = datetime.timedelta(days=7)
"""The training's own collectives notice a rank that is gone, or wait for it as long as the user wants them to."""
_WRITING = datetime.timedelta(hours=2)


class Together(Protocol):
    """The ranks of a run."""

    rank: int
    world_size: int

    def launch(self, values: Sequence[int]) -> Any:
        """Begins to work out the largest of each place's numbers over all ranks. For `result`."""

    def result(self, launched: Any) -> List[int]:
        """Waits for it."""

    def exchange(self, data: bytes) -> List[bytes]:
        """In the writing thread: each rank's bytes, which are equally many."""


class Alone:
    """A run of one process."""

    rank = 0
    world_size = 1

    def launch(self, values: Sequence[int]) -> Any:
        """Begins."""
        return list(values)

    def result(self, launched: Any) -> List[int]:
        """Ends."""
        found: List[int] = launched
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """Its own."""
        return [data]


class Ranks:
    """The ranks of torch.distributed's default group."""

    def __init__(self) -> None:
        """On all ranks."""
        import torch.distributed as dist

        self._dist = dist
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._training = dist.new_group(backend="gloo", timeout=_NEVER)
        self._writing = dist.new_group(backend="gloo", timeout=_WRITING)

    def launch(self, values: Sequence[int]) -> Any:
        """Begins. Costs tens of microseconds, and waits for nobody."""
        numbers = torch.tensor(list(values), dtype=torch.int64, device="cpu")
        return numbers, self._dist.all_reduce(numbers, self._dist.ReduceOp.MAX, group=self._training, async_op=True)

    def result(self, launched: Any) -> List[int]:
        """Waits for the slowest rank's `launch`."""
        numbers, work = launched
        work.wait()
        found: List[int] = numbers.tolist()
        return found

    def exchange(self, data: bytes) -> List[bytes]:
        """In the writing thread."""
        own = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
        others = [torch.empty_like(own) for _ in range(self.world_size)]
        self._dist.all_gather(others, own, group=self._writing)
        return [bytes(other.tolist()) for other in others]


def meet() -> Together:
    """The ranks, if torch.distributed is in use; on all ranks."""
    import torch.distributed as dist

    return Ranks() if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 else Alone()


def most(ranks: Together, *values: int) -> List[int]:
    """The largest of each place's numbers over all ranks. Waits for all of them."""
    return ranks.result(ranks.launch(values))
