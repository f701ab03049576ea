"""Greedy starts: repeatedly, the best job that fits starts, and all jobs are scored again.

Use it for orders that change with every start. For fixed orders `policies.selection.fill` is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, FloatColumn, IntColumn, Placement
from policies.placement.best_fit import Capacity
from policies.placement.rules import PlacementRule
from policies.selection import present_placements

Score = Callable[[Capacity, IntColumn], FloatColumn]
"""From free capacity and rows of waiting jobs to their scores, least first; ties go by submission."""
DEFERRED = "deferred: {}"


@dataclass(frozen=True)
class Greedy:
    """The jobs that are considered, and what happens when one is chosen."""

    placing: PlacementRule
    window: int = 0
    """Number of waiting jobs considered at once, in order of submission; 0: all. A job that starts makes room for the next."""
    defer: Callable[[Capacity, int, Placement], str | None] | None = None
    """Returns why the chosen job should wait, or None if it should start."""
    started: Callable[[int], None] | None = None
    """Called for every start."""

    def decide(self, state: ClusterState, score: Score) -> Decision:
        """Keep running jobs; start waiting jobs one by one, until none of the considered ones fits."""
        capacity = Capacity(state)
        allocation = present_placements(state, state.running)
        reasons: dict[int, str] = {}
        waiting = state.pending
        keys = np.array(capacity.requests.keys, dtype=np.int64)[waiting]
        queue = self._queue(waiting, capacity, score)
        waits, closed = np.ones(len(waiting), dtype=np.bool_), np.zeros(len(waiting), dtype=np.bool_)
        while capacity.total_free():
            considered = np.flatnonzero(waits)[: self.window or None]
            considered = considered[~closed[considered]]
            if len(considered) == 0:
                break
            best = int(considered[np.argmin(score(capacity, waiting[considered]))])
            row = int(waiting[best])
            placement = self.placing.place(capacity, row)
            if placement is None:
                closed |= keys == keys[best]
                continue
            why = self.defer(capacity, row, placement) if self.defer is not None else None
            if why is not None:
                closed[best] = True
                reasons[row] = DEFERRED.format(why)
                continue
            reasons[row] = self.placing.explain(state, self.placing.take(capacity, row, placement))
            allocation[row] = placement
            waits[best] = False
            if self.started is not None:
                self.started(row)
        return Decision(allocation, reasons, tuple(queue.tolist()))

    def _queue(self, waiting: IntColumn, capacity: Capacity, score: Score) -> IntColumn:
        """Return the waiting jobs by score; with a window, those that it has now, and then the others by submission."""
        first, others = (waiting, waiting[:0]) if not self.window else np.split(waiting, [self.window])
        return (
            np.concatenate((first[np.argsort(score(capacity, first), kind="stable")], others)) if len(first) else first
        )


def fixed(scores: FloatColumn | IntColumn) -> Score:
    """Return a score function for scores, one per job of the state, that do not change with starts."""
    column = np.asarray(scores, dtype=np.float64)
    return lambda _, rows: column[rows]
