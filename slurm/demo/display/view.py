"""What the demonstration shows of a cluster at one time, however that cluster is reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from policies.serving.runtime.hostlist import fold


class Stage(Enum):
    """Where a job is in its life."""

    EXPECTED = "not yet submitted"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self in {Stage.DONE, Stage.FAILED}


@dataclass(frozen=True, slots=True)
class JobView:
    """One job. Times in seconds since the Unix epoch."""

    label: str
    """Its name; tasks of an array are told apart: "sweep_1"."""
    job_id: str
    stage: Stage
    gpus: tuple[tuple[str, int], ...] = ()
    """Node → GPUs that it holds or held."""
    submit_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    why: str = ""
    """Why it waits, or why it runs where it does."""
    state: str = ""
    """Slurm's own word."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node: for each GPU the label of the job that holds it, "" if it is free."""

    name: str
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LinkView:
    """Traffic of one node's NIC over the last moment, Mbit/s."""

    sent: float
    received: float


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The whole cluster."""

    time_s: float
    jobs: Mapping[str, JobView]
    """By label; jobs that are not there yet, or no longer, are left out."""
    nodes: tuple[NodeView, ...]
    links: Mapping[str, LinkView] = field(default_factory=dict)
    """By node; empty where there are no links to measure."""


def where(gpus: tuple[tuple[str, int], ...]) -> str:
    """Nodes and GPUs in short, nodes with the same number together: n1:8, n[1-2,4]:6, or n1:8 n2:4."""
    by_count: defaultdict[int, list[str]] = defaultdict(list)
    for node, count in gpus:
        by_count[count].append(node)
    return " ".join(f"{fold(sorted(nodes, key=_natural))}:{count}" for count, nodes in by_count.items())


def _natural(name: str) -> tuple[str, int, str]:
    """Sort key that puts n2 before n10."""
    return name.rstrip("0123456789"), len(name), name
