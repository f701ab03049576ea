"""A guard of learned policies: where the agent leaves a job waiting for long that a simple rule would start, the rule decides.

An agent that was trained to leave GPUs idle at the right moments can do so without end where jobs, loads or clusters differ from
those of its training: the queue grows, and what the network sees lies ever farther from what it has learned. The guard needs no
knowledge of the training. A waiting job is *overdue* when it has waited for `stretch` times its estimated duration, and for
`least_s`. While the rule would start an overdue job that the agent leaves waiting, the rule decides about all waiting jobs; running
jobs go on. The rule is shortest job first, which starts every job that fits, so no GPU that an overdue job fits on stays idle.

The guard has no memory: the same state gives the same decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, FloatColumn, IntColumn
from policies.options import number, switch
from policies.placement.best_fit import Capacity
from policies.placement.rules import BEST_FIT, PlacementRule
from policies.selection import by, fill

STRETCH = 1.0
LEAST_S = 60.0
UNKNOWN_S = 3600.0
"""Duration of jobs without an estimate, seconds, if no other job of the state has one; otherwise they have the others' median."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Limits from which a job is overdue, and the placement of the rule. Raises ValueError for values that are out of range."""

    stretch: float = STRETCH
    least_s: float = LEAST_S
    placing: PlacementRule = BEST_FIT

    def __post_init__(self) -> None:
        number("stretch", self.stretch, unit="times a job's duration")
        number("least_s", self.least_s, unit="seconds")

    def checked(self, state: ClusterState, decision: Decision) -> Decision:
        """Return the agent's decision on that state, or the rule's, with `guard` as its reason."""
        waiting = state.pending
        left = waiting[[row not in decision.allocation for row in waiting.tolist()]] if len(waiting) else waiting
        if not len(left):
            return decision
        overdue = self.overdue(state, left)
        if not len(overdue):
            return decision
        first = self._startable(state, decision, overdue)
        if first is None:
            return decision
        return as_guard(fill(state, by(expected_s(state), waiting), placing=self.placing), state, first)

    def overdue(self, state: ClusterState, rows: IntColumn) -> IntColumn:
        """Return those of these jobs that have waited, over all their waits, for longer than the limits."""
        waited_s = state.time_s - state.jobs.submit_time_s - state.jobs.service_s
        return rows[waited_s[rows] >= np.maximum(self.stretch * expected_s(state)[rows], self.least_s)]

    def _startable(self, state: ClusterState, decision: Decision, rows: IntColumn) -> int | None:
        """Return the first of these jobs that fits on the GPUs which the decision leaves free; None if none fits."""
        capacity = Capacity(state, staying=state.running)
        for row in state.pending.tolist():
            if (placement := decision.allocation.get(row)) is not None:
                capacity.take(row, placement)
        return next(iter(self.placing.claim(capacity, rows.tolist())), None)


def guard_of(option: object, *, alone: bool) -> Guard | None:
    """Return the guard of a policy; None where it is switched off, or where an agent decides `alone`, as in its training.
    Raises ValueError."""
    return Guard() if switch("guard", option) and not alone else None


def as_guard(ruled: Decision, state: ClusterState, row: int) -> Decision:
    """Return the rule's decision as that of a guard, which says that the job of that row was overdue."""
    reason = f"job {state.jobs.ids[row]} fits and is overdue, and the agent leaves it waiting: the shortest jobs start"
    return replace(ruled, reasons={row: f"{reason}; {why}" for row, why in ruled.reasons.items()}, guard=reason)


def expected_s(state: ClusterState) -> FloatColumn:
    """Return the expected duration of every job, seconds: its estimate, or the median of the known ones."""
    estimates = state.jobs.duration_estimate_s
    known = estimates[np.isfinite(estimates)]
    usual_s = float(np.median(known)) if len(known) else UNKNOWN_S
    return np.where(np.isfinite(estimates), estimates, usual_s)
