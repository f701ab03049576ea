"""Preemption by a threshold (contention_rl, section V, step 6): who runs far slower than it would alone gives its place up.

Chosen here, as the paper says nothing of it: one job at a decision, the one that suffers most, as the others may be well again
without it; nobody who has run for less than `RUN_S`; and where nobody has measured a job's contention sensitivity, that which
`policies.contention_model` predicts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.contention_model import ContentionModel
from policies.model import ClusterState, JobState

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


def without(state: ClusterState, row: int) -> ClusterState:
    """The same moment, had that job been stopped: it waits, and its GPUs are free."""
    jobs = state.jobs
    begin, end = int(jobs.placement_offset[row]), int(jobs.placement_offset[row + 1])
    kept = np.ones(len(jobs.placement_node), dtype=np.bool_)
    kept[begin:end] = False
    offset = jobs.placement_offset.copy()
    offset[row + 1 :] -= end - begin
    states, started = jobs.state.copy(), jobs.start_time_s.copy()
    states[row], started[row] = JobState.PENDING, np.nan
    return replace(
        state,
        jobs=replace(
            jobs,
            state=states,
            start_time_s=started,
            placement_offset=offset,
            placement_node=jobs.placement_node[kept],
            placement_gpus=jobs.placement_gpus[kept],
            placement_gpu_mask=jobs.placement_gpu_mask[kept],
        ),
    )
