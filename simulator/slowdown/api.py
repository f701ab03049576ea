"""The interface of a slowdown model.

The speed of a running job is the product of its factors in all models, each in (0, 1]: 1 is the throughput of the job alone, at
its requested size, with the best locality. (For a job that runs at another size than it requested, the factor of elastic scaling
may be above 1.) Models update their loads incrementally: they are notified of the GPUs that each job gets and frees, and return
the jobs whose factors may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable


@dataclass(frozen=True, slots=True)
class Resident:
    """A running job, as models know it. Invariant: it occupies `counts[i]` > 0 GPUs of node `nodes[i]`; nodes are distinct."""

    job: int
    """Row of the trace."""
    model: str
    """Name of the network that it trains, '' when not known."""
    batch_size: float
    """Examples per step and GPU at the requested size; -1 when not known. See `batch_per_gpu`."""
    requested_gpus: int
    nodes: Sequence[int]
    counts: Sequence[int]
    gpu_masks: Mapping[int, int] = field(default_factory=dict)
    """Which GPUs by node (bit k: GPU k); empty where no model needs it."""


def batch_per_gpu(batch_size: int, gpus: int) -> float:
    """Return the batch per GPU, from a trace's batch over all GPUs; -1 when not known."""
    return batch_size / gpus if batch_size > 0 else -1


class SlowdownModel(Protocol):
    """One reason why jobs run below their ideal speed."""

    @property
    def only_between_nodes(self) -> bool:
        """True if jobs on one node have factor 1 and affect no other job: the model need not be notified of them."""

    @property
    def needs_gpus(self) -> bool:
        """True if the factor depends on which GPUs of a node a job has (`Resident.gpu_masks`), not only on how many."""

    def enter(self, resident: Resident) -> None:
        """Add a job, which occupies these GPUs from now on."""

    def leave(self, job: int) -> None:
        """Remove a job, which occupies no GPUs any more."""

    def changed(self) -> Iterable[int]:
        """Return the running jobs whose factor may have changed since the last call, each once."""

    def factor(self, job: int) -> float:
        """Return the throughput of a running job, relative to that without this reason."""

    def fork(self) -> Self:
        """Return an independent copy, in time proportional to the running jobs."""


@runtime_checkable
class SharesLinks(Protocol):
    """A slowdown model of shared links, which knows which jobs have shared one."""

    @property
    def sharers(self) -> set[int] | None:
        """Rows of the jobs that have used a link together with another job since the run began; None: it has no links."""
