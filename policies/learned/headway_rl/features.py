"""Features of a job, on which its value depends. All are relative to the cluster's nodes and to the durations of its jobs, so that
weights learned on one cluster apply to another.

Durations are in units of the mean estimated duration of the present jobs, GPUs in those of the largest node. A job without an
estimate counts with that mean duration; if no job has an estimate, it is an hour. Values that were not measured are typical
ones (`policies.speeds.job_profiles`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.model import ClusterState, FloatColumn, JobState
from policies.speeds.contention_model import ContentionModel

ENCODER = "headway-rl/2"
NAMES = (
    "remaining",
    "gpus",
    "waited",
    "at_stake",
    "runs",
    "share",
    "odd",
    "wide",
    "remaining_pressure",
    "gpus_pressure",
    "at_stake_pressure",
    "waited_gpus",
    "gpus_coarse",
)
"""Columns: logarithms of remaining run time, of GPUs, and of 1 + time since submission; the speed lost where two jobs share links;
whether the job runs; its GPUs as a share of the cluster; whether they are not a multiple of a node, and whether more than a node;
and products of these with pressure (logarithm of 1 + the waiting work, in mean durations of the whole cluster), and with coarseness
(the mean size of jobs as a share of the cluster, weighted by GPUs). Pressure and coarseness are the same for all jobs of a state,
so that alone they would decide nothing."""
_LEAST_REMAINING = 0.01
_HOUR_S = 3600.0


def features(state: ClusterState, model: ContentionModel) -> npt.NDArray[np.float64]:
    """Return one row for each job, with one finite column for each of NAMES."""
    jobs, nodes = state.jobs, state.nodes
    node_gpus = float(max(nodes.gpus.max(), 1)) if len(nodes) else 1.0
    all_gpus = float(max(nodes.gpus[nodes.available].sum(), 1)) if len(nodes) else 1.0
    unit_s, left_s = _times(state)
    gpus = jobs.num_gpus.astype(np.float64)
    left = np.maximum(left_s / unit_s, _LEAST_REMAINING)
    waits = jobs.state == JobState.PENDING
    work = float((left * gpus)[waits].sum()) / all_gpus
    pressure = np.log1p(work)
    coarse = float((gpus**2).sum() / max(gpus.sum(), 1.0)) / all_gpus
    stakes: dict[tuple[object, int], float] = {}
    stake = np.empty(len(jobs))
    for row, asked in enumerate(jobs.num_gpus.tolist()):
        kind = model.kind(row), asked
        if kind not in stakes:
            stakes[kind] = model.at_stake(row, asked)
        stake[row] = stakes[kind]
    remaining, large = np.log(left), np.log(np.maximum(gpus, 1.0) / node_gpus)
    waited = np.log1p(np.maximum(state.time_s - jobs.submit_time_s, 0.0) / unit_s)
    columns = (
        remaining,
        large,
        waited,
        stake,
        ~waits,
        gpus / all_gpus,
        gpus % node_gpus != 0,
        gpus > node_gpus,
        remaining * pressure,
        large * pressure,
        stake * pressure,
        waited * large,
        large * coarse,
    )
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def _times(state: ClusterState) -> tuple[float, FloatColumn]:
    """Return the unit of durations, and the remaining time of each job, in seconds."""
    estimates = state.jobs.duration_estimate_s
    known = np.isfinite(estimates) & (estimates > 0)
    unit_s = float(estimates[known].mean()) if known.any() else _HOUR_S
    left_s = np.where(known, state.remaining_s, unit_s)
    return unit_s, left_s
