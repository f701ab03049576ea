"""Columns of Slurm's order: the priority that each waiting job would have if Headway did not hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from controller.base.apart import apart
from controller.observe.job_row import JobRow
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.shares import Shares
from controller.slurm.priorities.formula import Requests, multifactor
from controller.slurm.priorities.preemption import PreemptionRules
from controller.slurm.priorities.weights import PriorityWeights
from policies.model import ClusterState, Jobs


@dataclass(frozen=True, slots=True)
class PriorityFacts:
    """Settings and shares from which priorities are computed. `weights` None: Slurm starts jobs in the order of submission, but for
    nice values (priority/basic)."""

    weights: PriorityWeights | None = None
    shares: Shares = field(default_factory=Shares)
    preemption: PreemptionRules | None = None
    """Slurm's rules of preemption; None: it does not preempt."""


def with_slurm_order(
    state: ClusterState,
    rows: Sequence[JobRow],
    statics: npt.NDArray[np.void],
    snapshot: SlurmSnapshot,
    facts: PriorityFacts | None,
) -> ClusterState:
    """Return the state with both columns; unchanged if the facts are not known, or if no job waits."""
    waiting = state.pending
    if facts is None or not len(waiting):
        return state
    jobs = state.jobs
    seen = [rows[row] for row in waiting.tolist()]
    here = statics[waiting]
    if facts.weights is None:
        found = -_numbers(seen) - here["nice"]
    else:
        since_s = np.fmax(jobs.submit_time_s[waiting], here["eligible_time_s"])
        requests = Requests(
            owners=[row.owner for row in seen],
            resources={
                "cpu": here["cpus"],
                "mem": here["memory_mib"],
                "node": jobs.min_nodes[waiting].astype(np.float64),
                "gres/gpu": jobs.num_gpus[waiting].astype(np.float64),
            },
            age_s=state.time_s - since_s,
            nice=here["nice"],
            time_limit_s=_time_limits(seen),
            whole_nodes=jobs.exclusive[waiting],
        )
        found = multifactor(requests, facts.weights, facts.shares, snapshot)
    priority = np.full(len(jobs), np.nan)
    priority[waiting] = found
    return replace(state, jobs=replace(jobs, slurm_priority=priority, partition_tier=_tiers(jobs, rows, snapshot)))


def _numbers(rows: Sequence[JobRow]) -> npt.NDArray[np.float64]:
    """Return the numbers of the jobs (of an array: its own), by which priority/basic orders them."""
    return np.array([float(row.order[1]) for row in rows])


def _time_limits(rows: Sequence[JobRow]) -> npt.NDArray[np.float64]:
    return np.array([np.nan if row.job.time_limit_s is None else row.job.time_limit_s for row in rows])


def _tiers(jobs: Jobs, rows: Sequence[JobRow], snapshot: SlurmSnapshot) -> npt.NDArray[np.int64]:
    """Return the highest tier of each job's partitions."""
    tiers = {partition.name: partition.priority_tier for partition in snapshot.partitions}
    by_text: dict[str, int] = {}
    for row in rows:
        text = row.owner[3]
        if text not in by_text:
            by_text[text] = 1
            with apart("Slurm's order", row.key.job_id):
                by_text[text] = max((tiers.get(name, 1) for name in text.split(",")), default=1)
    return np.fromiter((by_text[row.owner[3]] for row in rows), np.int64, len(jobs))
