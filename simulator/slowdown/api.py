"""What a slowdown model is.

The speed of a running job is the product of what every model says of it, in (0, 1]: 1 is the throughput that the job has
alone, at its requested size, with the best locality. (Of a job that runs at another size than it asked for, the model of
elastic scaling may say more than 1.) Models keep their loads incrementally: they are told who holds what, and answer whose
speed that may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Resident:
    """A job where it runs: what models are told of it. Invariant: `counts[i]` > 0 GPUs of node `nodes[i]`, nodes distinct."""

    job: int
    """Row of the trace."""
    model: str
    """Name of what it trains, '' when not known."""
    batch_size: float
    """Examples a step and GPU, at the size that it requested; -1 when not known. See `batch_per_gpu`."""
    requested_gpus: int
    nodes: Sequence[int]
    counts: Sequence[int]


def batch_per_gpu(batch_size: int, gpus: int) -> float:
    """Of a batch of so many examples over all GPUs, as traces have it; -1, not known, stays so."""
    return batch_size / gpus if batch_size > 0 else -1


class SlowdownModel(Protocol):
    """One reason for which jobs do not run at their ideal speed."""

    @property
    def only_between_nodes(self) -> bool:
        """Whether jobs on one node have factor 1 and touch nobody: then nobody needs to tell the model of them."""

    def enter(self, resident: Resident) -> None:
        """The job holds these GPUs from now on."""

    def leave(self, job: int) -> None:
        """The job holds nothing any more."""

    def changed(self) -> Iterable[int]:
        """Jobs that run now and whose factor may differ from what it was when this was last asked; each once."""

    def factor(self, job: int) -> float:
        """Throughput of a running job as a share of what it would be without this reason."""

    def fork(self) -> Self:
        """An independent copy, in time proportional to running jobs."""
