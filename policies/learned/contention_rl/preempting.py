"""Preemption by a threshold (contention_rl, section V, step 6): who runs far slower than it would alone gives its place up.

Chosen here, as the paper says nothing of it: one job at a decision, the one that suffers most, as the others may be well again
without it; nobody who has run for less than `RUN_S`; and where nobody has measured a job's contention sensitivity, that which
`policies.speeds.contention_model` predicts.
"""

from __future__ import annotations

import numpy as np

from policies.model import ClusterState
from policies.speeds.contention_model import ContentionModel

RUN_S = 300.0
"""As long as the controller's own threshold leaves a new run alone (`preemption_min_run_s`)."""


def too_slow(state: ClusterState, below: float) -> int | None:
    """The row of the job that runs at the least share of the speed that it would have alone, of those that may be stopped, if that
    is below the knob."""
    jobs = state.jobs
    running = state.running
    may = running[jobs.preemptible[running] & (state.time_s - jobs.start_time_s[running] >= RUN_S)]
    if not len(may) or len(running) < 2:
        return None
    found = sensitivities(state, may.tolist())
    worst = max(found, key=lambda row: (found[row], -row))
    return worst if found[worst] * below > 1.0 else None


def sensitivities(state: ClusterState, rows: list[int]) -> dict[int, float]:
    """Ideal over observed throughput of those who run, 1 or more: measured, or else predicted."""
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
