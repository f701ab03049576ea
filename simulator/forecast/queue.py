"""One pool of nodes with its running and waiting jobs at one instant, as forecasts begin from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.model import BoolColumn, FloatColumn, IntColumn
from policies.placement.requests import Parts


@dataclass(frozen=True, eq=False)
class QueueJobs:
    """One entry per job in every column, in the order in which the policy breaks ties. NaN: not known.

    A job of size k divides into the shares `Queue.parts[k]`. `group` and `kind` number the jobs whose run times are alike: those
    of one user, and among these those of one job name and size. -1: no earlier job is alike.
    """

    gpus: IntColumn
    size: IntColumn
    group: IntColumn
    kind: IntColumn
    running: BoolColumn
    service_s: FloatColumn
    """Run time up to now, all runs together."""
    attained_gpu_s: FloatColumn
    estimate_s: FloatColumn
    """Run time that the policy expects, all runs together."""
    limit_s: FloatColumn
    """Time limit of the job: no run is longer."""
    fixed: BoolColumn
    """True if the job must not be stopped."""
    ending: BoolColumn
    """True for a running job whose work is done, and whose GPUs are not free yet."""
    places: Mapping[int, tuple[list[int], list[int]]]
    """Nodes of each running job, and GPUs on each, by position."""
    earlier_s: FloatColumn | None = None
    """Run time of earlier runs, a part of `service_s`: time limits do not count it. None: a limit is that of all runs together."""

    def __len__(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, eq=False)
class Queue:
    """Nodes and jobs. Invariant: what running jobs occupy of a node is at most its entry in `node_gpus`."""

    now_s: float
    node_gpus: tuple[int, ...]
    node_up: tuple[bool, ...]
    """False: the node takes no more jobs; those that run there end there."""
    parts: Sequence[Parts]
    """Shares of the jobs of each size (`policies.placement.requests.divide`)."""
    jobs: QueueJobs


@dataclass(frozen=True, eq=False)
class PastJobs:
    """Jobs that were submitted up to now, sorted by submission: one entry per job in every column, numbered like `QueueJobs`.

    `duration_s` and `end_s` are NaN for jobs that have not ended.
    """

    submit_s: FloatColumn
    end_s: FloatColumn
    duration_s: FloatColumn
    gpus: IntColumn
    size: IntColumn
    group: IntColumn
    kind: IntColumn
    limit_s: FloatColumn

    def __len__(self) -> int:
        return len(self.submit_s)
