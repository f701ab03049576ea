"""View of a cluster at one time, for real and emulated clusters alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from policies.serving.runtime.hostlist import fold


class Stage(Enum):
    """Stages in the life of a job."""

    EXPECTED = "not yet submitted"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """True when the job has ended."""
        return self in {Stage.DONE, Stage.FAILED}


@dataclass(frozen=True, slots=True)
class JobView:
    """One job. Times in seconds since the Unix epoch."""

    label: str
    """Name of the job; a task of an array has its number: "sweep_1"."""
    job_id: str
    stage: Stage
    gpus: tuple[tuple[str, int], ...] = ()
    """Node → number of GPUs that the job occupies or occupied."""
    submit_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    why: str = ""
    """Reason for its waiting or its placement."""
    state: str = ""
    """State as Slurm names it."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `owners` has for each GPU the label of the job that occupies it, "" for a free GPU."""

    name: str
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkView:
    """Current traffic of the NIC of one node, Mbit/s."""

    sent: float
    received: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The whole cluster."""

    time_s: float
    jobs: Mapping[str, JobView]
    """Jobs by label, without those that do not exist yet or any more."""
    nodes: tuple[NodeView, ...]
    links: Mapping[str, LinkView] = field(default_factory=dict)
    """Traffic by node; empty when there are no links to measure."""


def where(gpus: tuple[tuple[str, int], ...]) -> str:
    """Return nodes and GPUs in short form, nodes with the same number together: n1:8, n[1-2,4]:6, or n1:8 n2:4."""
    by_count: defaultdict[int, list[str]] = defaultdict(list)
    for node, count in gpus:
        by_count[count].append(node)
    return " ".join(f"{fold(sorted(nodes, key=_natural))}:{count}" for count, nodes in by_count.items())


def _natural(name: str) -> tuple[str, int, str]:
    """Sort key that puts n2 before n10."""
    return name.rstrip("0123456789"), len(name), name
