"""The two rules that turn an order of jobs into an allocation. Most heuristics here use one of them.

`fill` is for policies that never stop a running job; `select` is for those that may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, IntColumn, JobState, Placement
from policies.placement.best_fit import Capacity, Fit, explain, placement_of
from policies.placement.counted_layout import CountedLayout
from policies.placement.rules import BEST_FIT, PlacementRule

MANY = 16
"""Newcomers from which on counting nodes (`CountedLayout`) takes less time than a layout."""
BLOCKED = "first in the queue; waits until enough GPUs are free for it, and no later job starts before it"
STOPPED = "stopped: jobs that come before it need its GPUs"


def fill(state: ClusterState, order: IntColumn, *, strict: bool = False, placing: PlacementRule = BEST_FIT) -> Decision:
    """Keep running jobs; start waiting jobs, in that order of rows, where they fit.

    With `strict`, the first that does not fit ends the pass.
    """
    allocation = present_placements(state, state.running)
    reasons: dict[int, str] = {}
    queue = order.tolist()
    fits = placing.claim(Capacity(state), queue, strict=strict)
    for row, fit in fits.items():
        allocation[row] = placement_of(fit)
        reasons[row] = placing.explain(state, fit)
    if strict and len(fits) < len(queue):
        reasons[queue[len(fits)]] = BLOCKED
    return Decision(allocation, reasons, tuple(queue))


def select(state: ClusterState, order: IntColumn, *, counted_from: int = MANY) -> Decision:
    """Select jobs preemptively along that order of rows, which contains every active job.

    Going down the order a job is selected if the whole selection can be laid out: selected running jobs in their own
    places, then selected newcomers in selection order by consolidated placement, the GPUs of running jobs that are not
    selected counting as free. A running job that is not selected is stopped, never moved. Running jobs that are not
    preemptible are selected before all others. From `counted_from` newcomers on, layouts may be counted; the decision is the same.
    """
    jobs = state.jobs
    fixed = state.running[~jobs.preemptible[state.running]]
    selection = _Selection(state, fixed, counted_from)
    runs = jobs.state == JobState.RUNNING
    movable = order[jobs.preemptible[order] | ~runs[order]]
    for running, rows in groupby(movable.tolist(), runs.tolist().__getitem__):
        if running:
            for row in rows:
                selection.offer_running(row)
        else:
            selection.offer_newcomers(rows)
    allocation = present_placements(state, fixed)
    allocation.update(selection.kept)
    reasons = {row: STOPPED for row in movable[runs[movable]].tolist() if row not in selection.kept}
    for row, fit in selection.newcomers().items():
        allocation[row] = placement_of(fit)
        reasons[row] = explain(state, fit)
    return Decision(allocation, reasons, tuple(movable[~runs[movable]].tolist()))


class _Selection:
    """The jobs selected so far, laid out.

    Invariants: `base` is what the selected running jobs leave; laying out the newcomers on it, in the order in which they
    were selected, gives their fits, and leaves `free`. `worst[share]` is at or above the (free GPUs, node) of every fit of
    a share of that size, while there is a running job that may be offered: only a node that comes before it could have been
    preferred. `needed[s]` are the slots of s GPUs that the newcomers need (`Capacity.has_slots`).

    When thousands of jobs of a long queue replace others, a layout for each running job that stays would take seconds. So where the
    newcomers have become many, and are alike enough, they are in `counted`: meanwhile only `base` is kept.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState, fixed: IntColumn, counted_from: int) -> None:
        self._state = state
        self._base = Capacity(state, staying=fixed)
        self._free = self._base.copy()
        self._worst: dict[int, tuple[int, int]] = {}
        self._needed = [0] * (int(state.nodes.gpus.max(initial=0)) + 1)
        self._own = present_placements(state, state.running[state.jobs.preemptible[state.running]])
        self._exclusive: list[bool] = state.jobs.exclusive.tolist()
        self._any_exclusive = False
        """True if a newcomer takes whole nodes."""
        self._counted: CountedLayout | None = None
        self._counted_from = counted_from
        self._countable = True
        """False if newcomers were found that cannot be counted."""
        self._newcomers: dict[int, Fit] = {}
        self.kept: dict[int, Placement] = {}
        """Selected running jobs, besides the fixed ones."""

    def offer_newcomers(self, rows: Iterable[int]) -> None:
        """Select each of these waiting jobs that fits behind the newcomers before it."""
        rows = iter(rows)
        if self._counted is not None:
            rows = self._count(self._counted, rows)
        self._claim(rows)

    def _count(self, counted: CountedLayout, rows: Iterator[int]) -> Iterator[int]:
        """Offer these jobs to `counted`, up to the first that cannot be counted. Returns that one and those after it."""
        requests = self._base.requests
        for row in rows:
            request = requests.of(row)
            if not counted.counts_on(request):
                self._end_counting(counted)
                return chain((row,), rows)
            counted.offer(row, requests.keys[row], request)
        return rows

    def newcomers(self) -> dict[int, Fit]:
        """Return the selected waiting jobs, in the order in which they were selected."""
        if self._counted is None:
            return self._newcomers
        rows = self._counted.rows
        return dict(zip(rows, self._base.lay_out(rows) or (), strict=True))

    def _end_counting(self, counted: CountedLayout) -> None:
        """Lay out counted newcomers on nodes."""
        self._counted, self._countable = None, False
        self._free = self._base.copy()
        self._worst.clear()
        self._needed = [0] * len(self._needed)
        self._newcomers.clear()
        self._claim(counted.rows)

    def _begins_counting(self) -> bool:
        """Count the newcomers from now on, if there are many and all of them can be counted. Returns whether it does so."""
        if not self._countable or len(self._newcomers) < self._counted_from:
            return False
        counted = CountedLayout(self._base)
        requests = self._base.requests
        for row in self._newcomers:
            request = requests.of(row)
            self._countable = self._countable and counted.counts_on(request)
            if not self._countable:
                return False
            counted.offer(row, requests.keys[row], request)
        self._counted = counted
        return True

    def _claim(self, rows: Iterable[int]) -> None:
        fits = self._free.claim(rows)
        self._newcomers.update(fits)
        self._any_exclusive = self._any_exclusive or any(map(self._exclusive.__getitem__, fits))
        if self._own:
            self._note_worst(fits.values())
            for _, share, _ in chain.from_iterable(fits.values()):
                for gpus in range(1, share + 1):
                    self._needed[gpus] += share // gpus

    def offer_running(self, row: int) -> None:
        """Select a running job if the newcomers before it still fit, laid out anew, when it stays where it is."""
        placement = self._own[row]
        changes = self._base.changes(row, placement)
        if self._counted is not None:
            if self._counted.keep(changes):
                self._base.take(row, placement)
                self.kept[row] = placement
            return
        if not self._leaves_enough(changes):
            return
        disturbing = any(self._disturbs(*change) for change in changes)
        if disturbing and self._begins_counting():
            self.offer_running(row)
            return
        self._base.take(row, placement)
        if not disturbing:
            self._free.take(row, placement)
        else:
            fits = self._base.lay_out(self._newcomers) if self._base.has_slots(self._needed) else None
            if fits is None:
                self._base.give_back(row, placement)
                return
            self._resettle(row, placement, fits)
        self.kept[row] = placement

    def _note_worst(self, fits: Iterable[Fit]) -> None:
        worst = self._worst
        for node, share, free in chain.from_iterable(fits):
            worst[share] = max((free, node), worst.get(share, (0, 0)))

    def _resettle(self, row: int, placement: Placement, fits: list[Fit]) -> None:
        """Move newcomers to where they fit around that running job; most of them stay."""
        moved = [(job, old, new) for (job, old), new in zip(self._newcomers.items(), fits, strict=True) if old != new]
        for job, old, _ in moved:
            self._free.give_back(job, placement_of(old))
        self._free.take(row, placement)
        for job, _, new in moved:
            self._free.take(job, placement_of(new))
            self._newcomers[job] = new
        self._note_worst(new for _, _, new in moved)

    def _leaves_enough(self, changes: list[tuple[int, int, int]]) -> bool:
        """Quick test: return False if the GPUs cannot suffice. True where exclusive newcomers take more than they ask for."""
        lost = sum(before - after for _, before, after in changes)
        return self._any_exclusive or lost <= self._free.total_free()

    def _disturbs(self, node: int, before: int, after: int) -> bool:
        """Return whether a newcomer could be laid out differently if that node has `after` and not `before` GPUs free for it."""
        if self._free.free_gpus(node) != before:
            return True  # a newcomer is there
        return any(share <= after and (after, node) < worst for share, worst in self._worst.items())


def present_placements(state: ClusterState, rows: Iterable[int] | IntColumn) -> dict[int, Placement]:
    """Return the placements that the running jobs of these rows occupy."""
    jobs = state.jobs
    if jobs.server_offset is not None:
        found = {row: jobs.placement(row) for row in np.asarray(rows, dtype=np.int64).tolist()}
        return {row: placement for row, placement in found.items() if placement is not None}
    offsets = jobs.placement_offset.tolist()
    nodes, gpus = tuple(jobs.placement_node.tolist()), tuple(jobs.placement_gpus.tolist())
    return {
        row: Placement(nodes[offsets[row] : offsets[row + 1]], gpus[offsets[row] : offsets[row + 1]])
        for row in np.asarray(rows, dtype=np.int64).tolist()
    }


def by(key: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | IntColumn, rows: IntColumn) -> IntColumn:
    """Return these rows by rising key; ties in order of submission (the order of rows)."""
    return rows[np.argsort(key[rows], kind="stable")]


def active(state: ClusterState) -> IntColumn:
    """Return the rows of all jobs that wait or run, in order of submission."""
    return np.arange(len(state.jobs))
