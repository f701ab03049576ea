"""A guard of learned policies that stop and resize jobs: `guard` for agents that divide all GPUs anew.

Such an agent can leave a job waiting in two more ways: it can give the GPUs to elastic jobs beyond what these request, and it can
stop a job and give its GPUs to no other. So an overdue job is guarded if it fits, in its smallest size, on GPUs that the decision
leaves free when each elastic job has at most as many GPUs as it requests. Then the rule decides. Running jobs go on, with at most
the GPUs that they request; waiting jobs start, shortest first, with the GPUs that they request, or with fewer if they may.

Outside of the range that the agent was trained on, its order of jobs means little: there the rule also decides where the agent
gives the GPUs to other jobs than the overdue one that the rule would start. Inside, jobs may wait because others come first.

Where the rule would not start an overdue job either, for example because its nodes are fragmented, the agent decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.api import Decision
from policies.learned.guard import Guard, as_guard, guard_of, late_text, left_s
from policies.model import ClusterState, IntColumn, Placement
from policies.ordering.resizing import Resizer, ranges
from policies.placement.best_fit import Capacity
from policies.selection import by, present_placements

_REASON = "shortest first, with the GPUs that it requests"


class ResizingGuard:
    """Limits from which a job is overdue, and the rule. Invariant: the same state and decision give the same answer."""

    def __init__(self, round_s: float, limits: Guard | None = None, *, inside: bool = True) -> None:
        """A job that started or changed less than `round_s` ago keeps its size. `limits`: those of a `Guard`, and its placement.
        `inside=False`: the guard acts outside of the range of the training alone."""
        self._inside = inside
        self._limits = limits or Guard()
        self._round_s = round_s
        self._resizer = Resizer(self._limits.placing, round_s, _REASON)

    def checked(self, state: ClusterState, decision: Decision, *, is_known: bool = True) -> Decision:
        """Return the agent's decision on that state, or the rule's, with `guard` as its reason.

        `is_known`: the state is one that the agent was trained for, so that its order of jobs counts.
        """
        if is_known and not self._inside:
            return decision
        left = np.array([row for row in range(len(state.jobs)) if row not in decision.allocation], dtype=np.int64)
        overdue = self._limits.overdue(state, left, is_known=is_known) if len(left) else left
        if not len(overdue) or (is_known and not self._fits(state, decision, overdue)):
            return decision
        ruled = self.ruled(state)
        first = next((row for row in overdue.tolist() if row in ruled.allocation), None)
        return decision if first is None else as_guard(ruled, late_text(state, first))

    def _fits(self, state: ClusterState, decision: Decision, rows: IntColumn) -> bool:
        """Return whether one of these jobs fits on the GPUs that the decision leaves beyond what its jobs request."""
        capacity = Capacity(state, staying=state.running[:0])
        fixed = set(self._unchanging(state).tolist())
        requested = _requested(state)
        for row, placement in decision.allocation.items():
            capacity.take(row, placement if row in fixed else _cut(placement, requested[row]))
        low = ranges(state)[0]
        smallest = {row: int(low[row]) for row in rows.tolist()}
        return bool(self._limits.placing.claim(capacity.copy(capacity.requests.resized(smallest)), smallest))

    def ruled(self, state: ClusterState) -> Decision:
        """Return the rule's decision."""
        low, requested = ranges(state)[0].tolist(), _requested(state)
        own = {row: placement.num_gpus for row, placement in present_placements(state, state.running).items()}
        order = by(left_s(state), state.pending).tolist()

        def shares(rows: Sequence[int], free: int) -> dict[int, int]:
            may = set(rows)
            found = {row: min(gpus, requested[row]) for row, gpus in own.items() if row in may}
            free -= sum(found.values())
            for row in order:
                if row in may and low[row] <= free:
                    found[row] = min(requested[row], free)
                    free -= found[row]
            return found

        return self._resizer.decide(state, shares)

    def _unchanging(self, state: ClusterState) -> IntColumn:
        """Return the running jobs that keep size and placement."""
        running = state.running
        young = state.time_s - state.jobs.start_time_s[running] < self._round_s
        return running[~state.jobs.preemptible[running] | young]


def resizing_guard_of(option: object, round_s: float, *, inside: bool = True) -> ResizingGuard | None:
    """Return the guard of a policy with rounds of that length; None where it is switched off. Raises ValueError."""
    limits = guard_of(option, alone=False, has_rounds=True)
    return None if limits is None else ResizingGuard(round_s, limits, inside=inside)


def _requested(state: ClusterState) -> list[int]:
    """Return the GPUs that each job has under the rule at most: those that it requests, within its limits."""
    low, high = ranges(state)
    found: list[int] = np.clip(state.jobs.num_gpus, low, high).tolist()
    return found


def _cut(placement: Placement, most: int) -> Placement:
    """Return the first GPUs of the placement, at most so many."""
    kept, left = [], most
    for node, gpus in placement.items():
        if left > 0:
            kept.append((node, min(gpus, left)))
            left -= gpus
    return Placement.of(kept)
