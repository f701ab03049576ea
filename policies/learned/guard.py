"""A guard of learned policies: where the agent leaves a job waiting for long that a simple rule would start, the rule decides.

An agent that was trained to leave GPUs idle at the right moments can do so without end where jobs, loads or clusters differ from
those of its training: the queue grows, and what the network sees lies ever farther from what it has learned. The guard needs no
knowledge of the training. A waiting job is *overdue* when it has waited for `stretch` times its estimated duration, and for
`least_s`. While the rule would start an overdue job that the agent leaves waiting, the rule decides about all waiting jobs; running
jobs go on. The rule is shortest job first, which starts every job that fits, so no GPU that an overdue job fits on stays idle.

Outside of the range that the agent was trained on, there is less reason to trust its patience. There a job is overdue when it has
waited for `unknown_stretch` times its estimated duration, or will have when the next running job is expected to end: on an idle
cluster nothing may happen before, and so nothing be decided.

This guard has no memory: the same state gives the same decision. `policies.learned.shadow` has a guard with one.
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
UNKNOWN_STRETCH = 0.1
LEAST_S = 60.0
UNKNOWN_S = 3600.0
"""Duration of jobs without an estimate, seconds, if no other job of the state has one; otherwise they have the others' median."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Limits from which a job is overdue, and the placement of the rule. Raises ValueError for values that are out of range."""

    stretch: float = STRETCH
    least_s: float = LEAST_S
    placing: PlacementRule = BEST_FIT
    unknown_stretch: float = UNKNOWN_STRETCH
    looks_ahead: bool = True
    """Outside of the range, let a job be overdue that will be when the next job ends. Not needed where rounds bring decisions."""

    def __post_init__(self) -> None:
        number("stretch", self.stretch, unit="times a job's duration")
        number("unknown_stretch", self.unknown_stretch, unit="times a job's duration")
        number("least_s", self.least_s, unit="seconds")

    def checked(self, state: ClusterState, decision: Decision, *, is_known: bool = True) -> Decision:
        """Return the agent's decision on that state, or the rule's, with `guard` as its reason.

        `is_known`: the state is one that the agent was trained for.
        """
        waiting = state.pending
        left = waiting[[row not in decision.allocation for row in waiting.tolist()]] if len(waiting) else waiting
        if not len(left):
            return decision
        overdue = self.overdue(state, left, is_known=is_known)
        if not len(overdue):
            return decision
        first = self._startable(state, decision, overdue)
        return decision if first is None else as_guard(self.ruled(state), late_text(state, first))

    def ruled(self, state: ClusterState) -> Decision:
        """Return the rule's decision: running jobs go on, and waiting jobs start, the shortest first, if they fit."""
        return fill(state, by(left_s(state), state.pending), placing=self.placing)

    def overdue(self, state: ClusterState, rows: IntColumn, *, is_known: bool = True) -> IntColumn:
        """Return those of these jobs that have waited, over all their waits, for longer than the limits."""
        waited_s = state.time_s - state.jobs.submit_time_s - state.jobs.service_s
        stretch = self.stretch if is_known else self.unknown_stretch
        soon_s = next_end_s(state) if self.looks_ahead and not is_known else 0.0
        return rows[waited_s[rows] + soon_s >= np.maximum(stretch * expected_s(state)[rows], self.least_s)]

    def _startable(self, state: ClusterState, decision: Decision, rows: IntColumn) -> int | None:
        """Return the first of these jobs that fits on the GPUs which the decision leaves free; None if none fits."""
        capacity = Capacity(state, staying=state.running)
        for row in state.pending.tolist():
            if (placement := decision.allocation.get(row)) is not None:
                capacity.take(row, placement)
        return next(iter(self.placing.claim(capacity, rows.tolist())), None)


def guard_of(option: object, *, alone: bool, has_rounds: bool = False) -> Guard | None:
    """Return the guard of a policy; None where it is switched off, or where an agent decides `alone`, as in its training.
    `has_rounds`: the policy decides from time to time, whether something happens or not. Raises ValueError."""
    return Guard(looks_ahead=not has_rounds) if switch("guard", option) and not alone else None


def as_guard(ruled: Decision, reason: str) -> Decision:
    """Return the rule's decision as that of a guard, which says why the rule decides."""
    return replace(ruled, reasons={row: f"{reason}; {why}" for row, why in ruled.reasons.items()}, guard=reason)


def late_text(state: ClusterState, row: int) -> str:
    """Return the reason of a guard for an overdue job."""
    return f"job {state.jobs.ids[row]} fits and is overdue, and the agent leaves it waiting: the shortest jobs start"


def expected_s(state: ClusterState) -> FloatColumn:
    """Return the expected duration of every job, seconds: its estimate, or the median of the known ones."""
    estimates = state.jobs.duration_estimate_s
    known = estimates[np.isfinite(estimates)]
    usual_s = float(np.median(known)) if len(known) else UNKNOWN_S
    return np.where(np.isfinite(estimates), estimates, usual_s)


def left_s(state: ClusterState) -> FloatColumn:
    """Return the expected duration that is left of every job, seconds."""
    return np.maximum(expected_s(state) - state.jobs.service_s, 0.0)


def next_end_s(state: ClusterState) -> float:
    """Return the time until the first running job is expected to end, seconds; 0 where none runs."""
    return float(left_s(state)[state.running].min()) if len(state.running) else 0.0
