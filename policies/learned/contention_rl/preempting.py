"""Preemption by a threshold (contention_rl, section V, step 6): a job that runs far slower than alone gives up its placement.

The paper leaves some points open; the choices here are: one job at a decision, the slowest, since the others may recover without
it; no job that has run for less than `RUN_S`; and where a job's contention sensitivity was not measured, the prediction of
`policies.speeds.contention_model`.
"""

from __future__ import annotations

import numpy as np

from policies.model import ClusterState
from policies.speeds.contention_model import ContentionModel

RUN_S = 300.0
"""Minimum run time before preemption, as in the controller (`preemption_min_run_s`)."""


def too_slow(state: ClusterState, below: float) -> int | None:
    """Return the row of the job that runs at the least share of its speed alone, of those that may be stopped, if that share is
    less than `below`; otherwise None."""
    jobs = state.jobs
    running = state.running
    may = running[jobs.preemptible[running] & (state.time_s - jobs.start_time_s[running] >= RUN_S)]
    if not len(may) or len(running) < 2:
        return None
    found = sensitivities(state, may.tolist())
    worst = max(found, key=lambda row: (found[row], -row))
    return worst if found[worst] * below > 1.0 else None


def sensitivities(state: ClusterState, rows: list[int]) -> dict[int, float]:
    """Return ideal over observed throughput of these running jobs, 1 or more: measured, or else predicted."""
    measured = state.jobs.contention_sensitivity
    known = {} if measured is None else {row: float(measured[row]) for row in rows if np.isfinite(measured[row])}
    unknown = [row for row in rows if row not in known]
    if not unknown:
        return known
    model = ContentionModel(state)
    for row in unknown:
        placement = state.jobs.placement(row)
        assert placement is not None
        model.remove(row)
        effect = model.effect(row, placement)
        model.add(row, placement)
        known[row] = effect.alone / effect.own if effect.own > 0 else 1.0
    return known
