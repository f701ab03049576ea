"""EASY backfilling: later jobs may pass the head of the queue as long as that does not delay it.

Source: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from policies.api import Decision
from policies.model import ClusterState, IntColumn, Placement
from policies.ordering.nanoseconds import NEVER, whole_ns
from policies.placement.best_fit import Capacity, placement_of
from policies.placement.rules import BEST_FIT, PlacementRule
from policies.selection import present_placements


def backfill(state: ClusterState, order: IntColumn, *, placing: PlacementRule = BEST_FIT) -> Decision:
    """Start waiting jobs in that order of rows while they fit, and then those that do not delay the first that does not fit.

    Running jobs stay. The first job that does not fit is the head. T is the earliest expected finish of a running job at which
    the head can be placed on what is free now and all that is released until then. Going on down the order, a job starts if it
    can be placed now and either is expected to end by T, or leaves enough at T for the head. Only the one place that the rule
    gives is tried. A job without an estimate is expected to end after all that have one, and never by T. If the head does not fit
    even after the end of all running jobs, every job that fits starts. The reservation is a time, not nodes, and is made anew at
    every decision.
    """
    queue = order.tolist()
    capacity = Capacity(state)
    fits = placing.claim(capacity, queue, strict=True)
    allocation = present_placements(state, state.running)
    allocation.update((row, placement_of(fit)) for row, fit in fits.items())
    reasons = {row: placing.explain(state, fit) for row, fit in fits.items()}
    if len(fits) < len(queue):
        head = queue[len(fits)]
        pass_head = _PassHead(capacity, placing, head, allocation)
        reasons[head] = pass_head.promise
        for row, placement, reason in pass_head.starts(queue[len(fits) + 1 :]):
            allocation[row] = placement
            reasons[row] = reason
    return Decision(allocation, reasons, tuple(queue))


class _PassHead:
    """The jobs behind a blocked head. Invariant: `_later` is what will be free at T, given the jobs that started."""

    def __init__(self, now: Capacity, placing: PlacementRule, head: int, staying: dict[int, Placement]) -> None:
        self._now = now
        self._placing = placing
        self._head = head
        self._remaining: list[int] = whole_ns(now.state.remaining_s).tolist()
        self._later = now.copy()
        self._wait = self._reserve(staying)

    @property
    def promise(self) -> str:
        """Text that says when the head will start."""
        if self._wait is None:
            return "first in the queue; fits only on nodes that are not available now, so later jobs start before it"
        when = "when running jobs end" if self._wait == NEVER else f"in {self._wait / 1e9:.0f} s, by estimates"
        return f"first in the queue; starts {when}; later jobs start before it only if they do not delay it"

    def _reserve(self, staying: dict[int, Placement]) -> int | None:
        """Return how long the head has to wait, ns: NEVER for the end of jobs without an estimate; None when even that makes no
        room for it."""
        by_end = sorted(staying, key=self._remaining.__getitem__)
        for remaining, rows in groupby(by_end, key=self._remaining.__getitem__):
            for row in rows:
                self._later.give_back(row, staying[row])
            if self._placing.place(self._later, self._head) is not None:
                return remaining
        return None

    def starts(self, rows: Iterable[int]) -> Iterable[tuple[int, Placement, str]]:
        """Yield (row, placement, reason) of the jobs that start now."""
        now, later, place = self._now, self._later, self._placing.place
        keys = now.requests.keys
        full: set[int] = set()
        delaying: set[int] = set()
        for row in rows:
            ends_in_time = self._wait is None or self._remaining[row] <= min(self._wait, NEVER - 1)
            if keys[row] in full or (keys[row] in delaying and not ends_in_time):
                continue
            placement = place(now, row)
            if placement is None:
                full.add(keys[row])
                continue
            if not ends_in_time:
                later.take(row, placement)
                if place(later, self._head) is None:
                    later.give_back(row, placement)
                    delaying.add(keys[row])
                    continue
            reason = f"backfilled; {self._placing.explain(now.state, now.fit(placement))}"
            now.take(row, placement)
            delaying.clear()
            yield row, placement, reason
