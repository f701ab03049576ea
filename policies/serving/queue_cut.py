"""The part of a state that a policy considers: where its spec has a number of waiting jobs, the others are not sent to it.

With 100,000 waiting jobs most of a decision's time is spent on writing, sending and reading jobs that cannot start. A policy that
looks only at the head of the queue says so (`PolicySpec.considers`), and gets all running jobs and that head.

Each job that starts takes a GPU at least. So a policy that looks at n waiting jobs, and at one more for each that it starts, never
looks beyond the first n + f, where f is the number of GPUs that are free or that it may free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, IntColumn, Jobs, ProfileTable
from policies.placement.best_fit import free_gpus

_OTHER_COLUMNS = frozenset(
    {"users", "placement_node", "placement_gpus", "placement_gpu_mask", "server_node", "server_count"}
)
"""Columns of `Jobs` that do not have an entry for each job."""
_OFFSETS = frozenset({"placement_offset", "server_offset"})
_JOB_PROFILES = ("of_job", "job_batch_per_gpu")
"""Columns of `ProfileTable` that have one."""


@dataclass(frozen=True)
class QueueCut:
    """A state and the part of it that a policy considers.

    Invariant: `considered` has all running jobs and the first waiting jobs of `whole`, in the same order.
    """

    whole: ClusterState
    considered: ClusterState
    rows: IntColumn
    """For each job of `considered`, its row in `whole`."""

    @property
    def is_cut(self) -> bool:
        """True if jobs were left out."""
        return self.considered is not self.whole

    def restored(self, decision: Decision) -> Decision:
        """Return a decision on the considered part as one on the whole state. Where it has a queue, the jobs that were left out
        come last, in order of submission."""
        if not self.is_cut:
            return decision
        rows = _Rows(self.rows.tolist(), len(self.whole.jobs))
        left_out = self.whole.pending[len(self.considered.pending) :].tolist()
        queue = (*(rows[row] for row in decision.queue), *left_out) if decision.queue else ()
        return replace(
            decision,
            allocation={rows[row]: placement for row, placement in decision.allocation.items()},
            reasons={rows[row]: reason for row, reason in decision.reasons.items()},
            queue=queue,
        )


class _Rows:
    """Rows of the whole state by those of its part. A row that is no job stays one that is no job: such decisions are refused."""

    def __init__(self, rows: list[int], jobs: int) -> None:
        self._rows = rows
        self._jobs = jobs

    def __getitem__(self, row: int) -> int:
        if row < 0:
            return row
        return self._rows[row] if row < len(self._rows) else self._jobs + row


def cut_queue(state: ClusterState, spec: PolicySpec) -> QueueCut:
    """Return the part of the state that the policy of that spec considers: the whole state where it considers all jobs."""
    waiting = state.pending
    if not 0 < spec.considers < len(waiting):
        return QueueCut(state, state, np.arange(len(state.jobs)))
    running = state.running
    staying = running[~state.jobs.preemptible[running]] if spec.preempts else running
    most = spec.considers + free_gpus(state, staying)
    if most >= len(waiting):
        return QueueCut(state, state, np.arange(len(state.jobs)))
    rows = np.sort(np.concatenate((running, waiting[:most])))
    profiles = None if state.profiles is None else _profiles_of(state.profiles, rows)
    return QueueCut(state, replace(state, jobs=_jobs_of(state.jobs, rows), profiles=profiles), rows)


def _jobs_of(jobs: Jobs, rows: IntColumn) -> Jobs:
    """Return those jobs. Jobs that are left out wait, so they have no placements, and those of the others stay as they are."""
    columns: dict[str, Any] = {"ids": tuple(map(jobs.ids.__getitem__, rows.tolist()))}
    for name, column in vars(jobs).items():
        if name in _OFFSETS and column is not None:
            columns[name] = np.append(column[rows], column[-1])
        elif isinstance(column, np.ndarray) and name not in _OTHER_COLUMNS:
            columns[name] = column[rows]
    return replace(jobs, **columns)


def _profiles_of(profiles: ProfileTable, rows: IntColumn) -> ProfileTable:
    columns = {name: getattr(profiles, name) for name in _JOB_PROFILES}
    return replace(profiles, **{name: column[rows] for name, column in columns.items() if column is not None})
