"""One job at a time: again and again, the best of those that fit starts, and all are scored anew.

For orders that change with every start. Orders that do not are cheaper by `policies.selection.fill`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, FloatColumn, IntColumn, Placement
from policies.placement.best_fit import Capacity
from policies.placement.rules import PlacementRule
from policies.selection import held_placements

Score = Callable[[Capacity, IntColumn], FloatColumn]
"""What these waiting jobs are worth now, least first; ties go by submission."""
HELD = "held back: {}"


@dataclass(frozen=True)
class Greedy:
    """Who is considered, and what happens besides when a job is chosen."""

    placing: PlacementRule
    window: int = 0
    """Only so many of the jobs that wait, first come first, are considered at once; 0: all. Who starts makes room."""
    hold: Callable[[Capacity, int, Placement], str | None] | None = None
    """Why the chosen job should rather wait, when it should."""
    started: Callable[[int], None] | None = None
    """Told of every start."""

    def decide(self, state: ClusterState, score: Score) -> Decision:
        """Running jobs stay; waiting jobs start one by one, until none of those considered fits."""
        capacity = Capacity(state)
        allocation = held_placements(state, state.running)
        reasons: dict[int, str] = {}
        waiting = state.pending
        keys = np.array(capacity.requests.keys, dtype=np.int64)[waiting]
        queue = waiting[np.argsort(score(capacity, waiting), kind="stable")] if len(waiting) else waiting
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
            why = self.hold(capacity, row, placement) if self.hold is not None else None
            if why is not None:
                closed[best] = True
                reasons[row] = HELD.format(why)
                continue
            reasons[row] = self.placing.explain(state, self.placing.take(capacity, row, placement))
            allocation[row] = placement
            waits[best] = False
            if self.started is not None:
                self.started(row)
        return Decision(allocation, reasons, tuple(queue.tolist()))


def fixed(scores: FloatColumn | IntColumn) -> Score:
    """Scores, one per job of the state, that do not change with starts."""
    column = np.asarray(scores, dtype=np.float64)
    return lambda _, rows: column[rows]
