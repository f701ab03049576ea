"""From an order of jobs to an allocation: the two rules that every heuristic here is made of.

`fill` is for policies that never stop a running job; `select` is for those that may.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
            reasons[row] = explain(capacity, placement)
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


@dataclass(slots=True)
class _Layout:
    """Selected newcomers, laid out in selection order on what running jobs leave.

    Invariant: `capacity` is what the newcomers leave. `worst[share]` is at or above every (free GPUs, node) that a share
    of that size was given: a node that comes before it in best fit might have been preferred.
    """

    capacity: Capacity
    newcomers: dict[int, tuple[Placement, str]] = field(default_factory=dict)
    worst: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, row: int) -> bool:
        """Place one more; False, and nothing changed, when it does not fit."""
        placement = self.capacity.place(row)
        if placement is None:
            return False
        for node, share in placement.items():
            fit = (self.capacity.free_gpus(node), node)
            self.worst[share] = max(fit, self.worst.get(share, fit))
        self.newcomers[row] = placement, explain(self.capacity, placement)
        self.capacity.take(row, placement)
        return True


class _Selection:
    """The jobs selected so far, laid out.

    Invariant: `base` is what the selected running jobs leave, and laying out the newcomers on it, in the order in which
    they were selected, gives `layout`.
    """

    def __init__(self, state: ClusterState, fixed: IntColumn) -> None:
        self._state = state
        self._base = Capacity(state, held=fixed)
        self._layout = _Layout(self._base.copy())
        self._own = held_placements(state, state.running[state.jobs.preemptible[state.running]])
        self.kept: dict[int, Placement] = {}

    @property
    def newcomers(self) -> dict[int, tuple[Placement, str]]:
        """Selected waiting jobs: where they go, and why there."""
        return self._layout.newcomers

    def offer_newcomer(self, row: int) -> None:
        """Select a waiting job if it fits behind the newcomers before it."""
        self._layout.add(row)

    def offer_running(self, row: int) -> None:
        """Select a running job if the newcomers before it still fit, laid out anew, when it stays where it is."""
        placement = self._own[row]
        changes = self._base.changes(row, placement)
        if not self._leaves_enough(changes):
            return
        if any(self._disturbs(*change) for change in changes):
            layout = self._laid_out_around(row, placement)
            if layout is None:
                return
            self._layout = layout
        else:
            self._layout.capacity.take(row, placement)
        self._base.take(row, placement)
        self.kept[row] = placement

    def _leaves_enough(self, changes: list[tuple[int, int, int]]) -> bool:
        """A first look by number of GPUs only. Says nothing where exclusive newcomers take more than they ask for."""
        lost = sum(before - after for _, before, after in changes)
        if lost <= self._layout.capacity.total_free():
            return True
        return bool(self._state.jobs.exclusive[list(self.newcomers)].any())

    def _disturbs(self, node: int, before: int, after: int) -> bool:
        """Whether a newcomer could be laid out differently when that node has `after` and not `before` GPUs free for it."""
        if self._layout.capacity.free_gpus(node) != before:
            return True  # one of them is there
        return any(share <= after and (after, node) < worst for share, worst in self._layout.worst.items())

    def _laid_out_around(self, row: int, placement: Placement) -> _Layout | None:
        layout = _Layout(self._base.copy())
        layout.capacity.take(row, placement)
        return layout if all(map(layout.add, self.newcomers)) else None


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
