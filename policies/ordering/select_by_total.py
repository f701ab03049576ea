"""Preemptive selection where jobs may be placed anywhere: only the total of GPUs counts.

The counterpart of `policies.selection.select` for `Layout.ANYWHERE`. Jobs are selected by counting; then the newcomers are laid
out, once, on what the selected running jobs leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, IntColumn, JobState, Placement
from policies.placement.best_fit import Capacity, Fit, placement_of
from policies.placement.requests import Requests
from policies.placement.rules import ANYWHERE
from policies.selection import STOPPED, present_placements

Claim = Callable[[Capacity, Mapping[int, Placement], list[int]], dict[int, Fit]]
"""From free capacity, the placements of the running jobs that stay, and the selected waiting jobs to the fits of those that find a
place, each taken."""


def _anywhere(base: Capacity, _: Mapping[int, Placement], newcomers: list[int]) -> dict[int, Fit]:
    return ANYWHERE.claim(base, newcomers)


def select_by_total(
    state: ClusterState,
    order: IntColumn,
    claim: Claim = _anywhere,
    explain: Callable[[ClusterState, Fit], str] = ANYWHERE.explain,
) -> Decision:
    """Select jobs preemptively along that order of rows, which contains every active job.

    Going down the order a job is selected if the GPUs that are left suffice for it. A running job needs those of its own
    GPUs whose nodes are available; one that is not selected is stopped, never moved. Running jobs that are not preemptible are
    selected before all others. Newcomers are then placed in the order in which they were selected: by `claim`, by default anywhere.

    Where more than GPUs limits placement a selected newcomer may find no place: it waits, and all is selected anew without
    it, so that no job is stopped for one that does not start. `explain` gives the reason for a placement.
    """
    jobs = state.jobs
    fixed = state.running[~jobs.preemptible[state.running]]
    runs = jobs.state == JobState.RUNNING
    movable = order[jobs.preemptible[order] | ~runs[order]]
    own = present_placements(state, state.running[jobs.preemptible[state.running]])
    always = present_placements(state, fixed)
    requests = Requests(state)
    refused: set[int] = set()
    rows: list[int] = movable.tolist()
    needed = _needed_gpus(Capacity(state, staying=fixed, requests=requests), own)
    while True:
        base = Capacity(state, staying=fixed, requests=requests)
        if needed is None:
            kept, newcomers = _count_off(base, rows, own, refused)
        else:
            kept, newcomers = _count_off_fixed_needs(base.total_free(), rows, own, needed, refused)
            base = Capacity(
                state, staying=np.concatenate((fixed, np.array(list(kept), dtype=np.int64))), requests=requests
            )
        fits = claim(base, always | kept, newcomers)
        if len(fits) == len(newcomers):
            break
        refused.update(row for row in newcomers if row not in fits)
    runs_on = always | kept
    reasons = {row: STOPPED for row in movable[runs[movable]].tolist() if row not in kept}
    reasons |= {row: explain(state, fit) for row, fit in fits.items()}
    allocation = runs_on | {row: placement_of(fit) for row, fit in fits.items()}
    return Decision(allocation, reasons, tuple(movable[~runs[movable]].tolist()))


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


def _needed_gpus(base: Capacity, own: Mapping[int, Placement]) -> list[int] | None:
    """Return for each job the free GPUs that it takes when it is selected: those that it asks for, or, where it runs, its own on
    available nodes. None where that depends on the jobs selected before it: beside exclusive jobs, and on nodes whose GPUs do not
    suffice for all that run there."""
    jobs, nodes = base.state.jobs, base.state.nodes
    rows = np.array(list(own), dtype=np.int64)
    entries = np.repeat(np.isin(np.arange(len(jobs)), rows), np.diff(jobs.placement_offset))
    node, gpus = jobs.placement_node[entries], jobs.placement_gpus[entries]
    used = np.bincount(node, weights=gpus, minlength=len(nodes))
    free = np.array([base.free_gpus(number) for number in range(len(nodes))])
    if jobs.exclusive[rows].any() or (used > free)[nodes.available].any():
        return None
    owner = np.repeat(np.arange(len(jobs)), np.diff(jobs.placement_offset))[entries]
    counted = np.bincount(owner, weights=gpus * nodes.available[node], minlength=len(jobs)).astype(np.int64)
    needed = jobs.num_gpus.copy()
    needed[rows] = counted[rows]
    listed: list[int] = needed.tolist()
    return listed


def _count_off_fixed_needs(
    left: int, order: list[int], own: dict[int, Placement], needed: list[int], refused: set[int]
) -> tuple[dict[int, Placement], list[int]]:
    """Return what `_count_off` returns, where each job takes the same number of GPUs whatever was selected before it."""
    kept: dict[int, Placement] = {}
    newcomers: list[int] = []
    for row in order:
        if needed[row] > left or row in refused:
            continue
        left -= needed[row]
        if row in own:
            kept[row] = own[row]
        else:
            newcomers.append(row)
    return kept, newcomers
