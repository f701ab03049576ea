"""From an order of jobs to an allocation: the two rules that every heuristic here is made of.

`fill` is for policies that never stop a running job; `select` is for those that may.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, IntColumn, JobState, Placement
from policies.packing import Capacity, explain

BLOCKED = "first in the queue; waits until it fits, and nobody passes it"
PAUSED = "paused: jobs that come before it need its GPUs"


def fill(state: ClusterState, order: IntColumn, *, strict: bool = False) -> Decision:
    """Running jobs stay; waiting jobs, in that order of rows, start where they fit.

    With `strict`, the first that does not fit ends the pass.
    """
    capacity = Capacity(state)
    allocation = held_placements(state, state.running)
    reasons: dict[int, str] = {}
    queue = order.tolist()
    for row in queue:
        placement = capacity.place(row)
        if placement is not None:
            reasons[row] = explain(state, capacity, placement)
            capacity.take(row, placement)
            allocation[row] = placement
        elif strict:
            reasons[row] = BLOCKED
            break
    return Decision(allocation, reasons, tuple(queue))


def select(state: ClusterState, order: IntColumn) -> Decision:
    """Preemptive selection along that order of rows, which holds every job that is active.

    Going down the order a job is selected if the whole selection can be laid out: selected running jobs in their own
    places, then selected newcomers in selection order by consolidated placement, the GPUs of running jobs that are not
    selected counting as free. A running job that is not selected is stopped, never moved. Running jobs that are not
    preemptible are selected before all others.
    """
    jobs = state.jobs
    fixed = state.running[~jobs.preemptible[state.running]]
    selection = _Selection(state, fixed)
    running = (jobs.state == JobState.RUNNING).tolist()
    movable = order[jobs.preemptible[order] | (jobs.state[order] != JobState.RUNNING)].tolist()
    for row in movable:
        if running[row]:
            selection.offer_running(row)
        else:
            selection.offer_newcomer(row)
    allocation = held_placements(state, fixed)
    allocation.update(selection.kept)
    reasons = {row: PAUSED for row in movable if running[row] and row not in selection.kept}
    for row, (placement, reason) in selection.newcomers.items():
        allocation[row] = placement
        reasons[row] = reason
    return Decision(allocation, reasons, tuple(row for row in movable if not running[row]))


class _Selection:
    """The jobs selected so far, laid out.

    Invariant: `capacity` is what is free after laying out all of them, `base` what is free beside the running ones alone;
    laying out `newcomers` in their order on `base` gives their placements.
    """

    def __init__(self, state: ClusterState, fixed: IntColumn) -> None:
        self._state = state
        self.kept: dict[int, Placement] = {}
        self.newcomers: dict[int, tuple[Placement, str]] = {}
        self._base = Capacity(state, held=fixed)
        self._capacity = self._base.copy()
        self._own = held_placements(state, state.running[state.jobs.preemptible[state.running]])

    def offer_newcomer(self, row: int) -> None:
        placed = _start(self._state, self._capacity, row)
        if placed is not None:
            self.newcomers[row] = placed

    def offer_running(self, row: int) -> None:
        placement = self._own[row]
        if not self.newcomers:
            self._base.take(row, placement)
            self._capacity.take(row, placement)
            self.kept[row] = placement
            return
        trial = self._base.copy()
        trial.take(row, placement)
        base = trial.copy()
        newcomers = {}
        for newcomer in self.newcomers:
            placed = _start(self._state, trial, newcomer)
            if placed is None:
                return
            newcomers[newcomer] = placed
        self.kept[row] = placement
        self.newcomers, self._base, self._capacity = newcomers, base, trial


def _start(state: ClusterState, capacity: Capacity, row: int) -> tuple[Placement, str] | None:
    placement = capacity.place(row)
    if placement is None:
        return None
    reason = explain(state, capacity, placement)
    capacity.take(row, placement)
    return placement, reason


def held_placements(state: ClusterState, rows: Iterable[int] | IntColumn) -> dict[int, Placement]:
    """What the running jobs of these rows hold."""
    jobs = state.jobs
    offsets = jobs.placement_offset.tolist()
    nodes, gpus = tuple(jobs.placement_node.tolist()), tuple(jobs.placement_gpus.tolist())
    return {
        row: Placement(nodes[offsets[row] : offsets[row + 1]], gpus[offsets[row] : offsets[row + 1]])
        for row in np.asarray(rows, dtype=np.int64).tolist()
    }


def by(key: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | IntColumn, rows: IntColumn) -> IntColumn:
    """These rows by rising key; ties in order of submission (rows are)."""
    return rows[np.argsort(key[rows], kind="stable")]


def active(state: ClusterState) -> IntColumn:
    """Rows of every job that waits or runs, in order of submission."""
    return np.arange(len(state.jobs))
