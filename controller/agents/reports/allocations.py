"""Nodes on which Slurm runs each job, as of the last snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.profiles.current import WITH_A_RUN
from controller.slurm.model.cluster import SlurmSnapshot

_SETTLED_S = 30.0
"""Time after the start of a run in which a report may still belong to the run before, because clocks differ by some seconds."""


@dataclass(frozen=True, slots=True)
class _Run:
    start_s: float
    nodes: frozenset[str]


class Allocations:
    """Invariant: a node is excluded only when the snapshot shows where the job runs. A job that is not in it excludes no node."""

    def __init__(self, snapshot: Callable[[], SlurmSnapshot | None]) -> None:
        """`snapshot` gives the last snapshot; None before the first."""
        self._snapshot = snapshot
        self._of: SlurmSnapshot | None = None
        self._runs: dict[int, _Run] = {}
        """Made anew for each snapshot, of its jobs. Bound: the jobs of one snapshot."""

    def excludes(self, node: str, job_id: int, time_s: float) -> bool:
        """Return whether Slurm had the job of that number only on other nodes at that time."""
        snapshot = self._snapshot()
        if snapshot is not self._of:
            self._of = snapshot
            self._runs = {} if snapshot is None else _runs(snapshot)
        run = self._runs.get(job_id)
        return run is not None and node not in run.nodes and time_s > run.start_s + _SETTLED_S


def _runs(snapshot: SlurmSnapshot) -> dict[int, _Run]:
    return {
        job.raw_id: _Run(job.start_time_s, frozenset(share.node for share in job.allocated))
        for job in snapshot.jobs
        if job.allocated and job.phase in WITH_A_RUN and job.raw_id is not None and job.start_time_s is not None
    }
