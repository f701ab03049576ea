"""What the demonstration shows of a cluster at one time, however that cluster is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


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
    """Nodes and GPUs in short: "n1:8 n2:8"."""
    return " ".join(f"{node}:{count}" for node, count in gpus)
