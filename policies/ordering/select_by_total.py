"""Preemptive selection where jobs may be placed anywhere: only the total of GPUs counts.

The counterpart of `policies.selection.select` for `Layout.ANYWHERE`. Jobs are selected by counting; then the newcomers are laid
out, once, on what the selected running jobs leave.
"""

from __future__ import annotations

from policies.api import Decision
from policies.model import ClusterState, IntColumn, JobState, Placement
from policies.placement.best_fit import Capacity, Fit, placement_of
from policies.placement.requests import Requests
from policies.placement.rules import ANYWHERE
from policies.selection import STOPPED, present_placements


def select_by_total(state: ClusterState, order: IntColumn) -> Decision:
    """Select jobs preemptively along that order of rows, which contains every active job.

    Going down the order a job is selected if the GPUs that are left suffice for it. A running job needs those of its own
    GPUs whose nodes are available; one that is not selected is stopped, never moved. Running jobs that are not preemptible are
    selected before all others. Newcomers are then placed in the order in which they were selected.

    Where more than GPUs limits placement a selected newcomer may find no place: it waits, and all is selected anew without
    it, so that no job is stopped for one that does not start.
    """
    jobs = state.jobs
    fixed = state.running[~jobs.preemptible[state.running]]
    runs = jobs.state == JobState.RUNNING
    movable = order[jobs.preemptible[order] | ~runs[order]]
    own = present_placements(state, state.running[jobs.preemptible[state.running]])
    requests = Requests(state)
    refused: set[int] = set()
    while True:
        base = Capacity(state, staying=fixed, requests=requests)
        kept, newcomers = _count_off(base, movable.tolist(), own, refused)
        fits = ANYWHERE.claim(base, newcomers)
        if len(fits) == len(newcomers):
            break
        refused.update(row for row in newcomers if row not in fits)
    return _decision(state, fixed, movable, kept, fits)


def _count_off(
    base: Capacity, order: list[int], own: dict[int, Placement], refused: set[int]
) -> tuple[dict[int, Placement], list[int]]:
    """Return the selected running jobs, which are then placed in `base`, and the selected newcomers."""
    left = base.total_free()
    num_gpus = base.state.jobs.num_gpus.tolist()
    kept: dict[int, Placement] = {}
    newcomers: list[int] = []
    for row in order:
        placement = own.get(row)
        if placement is None:
            if num_gpus[row] <= left and row not in refused:
                left -= num_gpus[row]
                newcomers.append(row)
            continue
        needed = sum(before - after for _, before, after in base.changes(row, placement))
        if needed <= left:
            left -= needed
            base.take(row, placement)
            kept[row] = placement
    return kept, newcomers


def _decision(
    state: ClusterState, fixed: IntColumn, movable: IntColumn, kept: dict[int, Placement], fits: dict[int, Fit]
) -> Decision:
    runs = state.jobs.state == JobState.RUNNING
    allocation = present_placements(state, fixed)
    allocation.update(kept)
    reasons = {row: STOPPED for row in movable[runs[movable]].tolist() if row not in kept}
    for row, fit in fits.items():
        allocation[row] = placement_of(fit)
        reasons[row] = ANYWHERE.explain(state, fit)
    return Decision(allocation, reasons, tuple(movable[~runs[movable]].tolist()))
