"""Contention-greedy: start a job where the cluster gains most speed by it, and defer it while that is too little.

The rule comes from no paper: it is the simple one that a contention-aware scheduler has to beat. A job's gain at a placement is
the speed that it would have there minus the speed that others would lose by it, both predicted
(`policies.speeds.contention_model`); it starts at the best of a handful of placements (`policies.placement.candidates`) if that
gains at least `threshold` of its ideal speed.

No job waits for ever:
- a job that would neither be slowed down by others nor slow them down is never deferred, so one starts whenever nothing runs;
- the job that is late and was submitted first comes before all others, is not deferred, and has nodes reserved until it fits;
  `policies.ordering.patience` says when a job is late, and how long a job can wait.

Typical values take the place of numbers that were not measured (`policies.speeds.job_profiles`, `policies.speeds.links`), and the
reason says so.
"""

from __future__ import annotations

import math

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, FloatColumn, IntColumn, Placement
from policies.options import choice, number
from policies.ordering.patience import RESERVED, STRETCH, WEEK_S, Patience, head_of, reserve
from policies.placement.best_fit import Capacity
from policies.placement.placement_text import nodes_text
from policies.selection import present_placements
from policies.speeds.best_candidate import best_candidate
from policies.speeds.contention_model import ContentionModel, Effect, Law
from policies.speeds.effect_text import effect_text, typical_text

ORDERS = ("fifo", "gpus", "shortest", "area")
WEIGHTS = ("gpus", "jobs")


class ContentionGreedy:
    """Starts each job where its speed less the losses of others is highest; defers it while that gain is below `threshold`."""

    spec = PolicySpec(
        name="contention-greedy",
        source="Headway; the rule that contention-aware policies have to beat",
        needs=frozenset({"profile"}),
    )

    def __init__(
        self,
        threshold: float = 0.6,
        order: str = "fifo",
        weight: str = "gpus",
        patience_s: float = WEEK_S,
        law: str = "auto",
        stretch: float = STRETCH,
    ) -> None:
        """Jobs by `order` (fifo; gpus: fewest first; shortest: by remaining time; area: both multiplied); speeds of others count by
        `weight`, by their GPUs or as jobs; `law` says what slows jobs down: links, pairs, both, nothing, or auto. A job is late
        when it has waited for `patience_s` and for `stretch` times its estimated duration."""
        self._threshold = number("threshold", threshold, unit="ideal speeds")
        if self._threshold > 1:
            raise ValueError(f"threshold is {threshold}; give a share of a job's ideal speed, from 0 to 1")
        self._order = choice("order", order, ORDERS)
        self._by_gpus = choice("weight", weight, WEIGHTS) == "gpus"
        self._patience = Patience(patience_s, stretch)
        self._law = Law(choice("law", law, tuple(each.value for each in Law)))

    def decide(self, state: ClusterState) -> Decision:
        """Start, in order, every waiting job that gains enough where it gains most."""
        head = head_of(state, self._patience.late(state))
        queue = [row for row in self._queue(state).tolist() if row != head]
        weights = state.jobs.num_gpus.tolist() if self._by_gpus else None
        search = _Search(state, ContentionModel(state, self._law, weights), self._threshold)
        if head is not None:
            search.start_first(head)
        for row in queue:
            search.start(row, defer=True)
        allocation = present_placements(state, state.running) | search.started
        return Decision(allocation, search.reasons, tuple(queue) if head is None else (head, *queue))

    def _queue(self, state: ClusterState) -> IntColumn:
        """Return the rows of the jobs that wait, in order."""
        jobs, waiting = state.jobs, state.pending
        keys: dict[str, FloatColumn] = {
            "gpus": jobs.num_gpus.astype(np.float64),
            "shortest": state.remaining_s,
            "area": state.remaining_s * jobs.num_gpus,
            "fifo": np.zeros(len(jobs)),
        }
        return waiting[np.argsort(keys[self._order][waiting], kind="stable")]


class _Search:
    """One decision while it is made.

    A kind of job that found no placement, or was deferred, is not tried again: free GPUs only decrease, and sharing only increases.
    Invariant: `_unreserved` is `_capacity` without the nodes reserved for the head; only jobs that are expected to end before
    the head can start take these.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState, model: ContentionModel, threshold: float) -> None:
        self._state = state
        self._model = model
        self._threshold = threshold
        self._capacity = Capacity(state)
        self._unreserved = self._capacity
        self._until_s = 0.0
        self._remaining_s = state.remaining_s
        self._full: set[tuple[int, bool]] = set()
        self._deferred: dict[tuple[int, tuple[int, float]], str] = {}
        self.started: dict[int, Placement] = {}
        self.reasons: dict[int, str] = {}

    def start_first(self, row: int) -> None:
        """Start that job without regard to its gain; if it does not fit, reserve the nodes where it fits soonest."""
        if not self.start(row, defer=False):
            self.reasons[row] = RESERVED
            reservation = reserve(self._state, self._capacity, row, self._state.running)
            self._unreserved = self._capacity.copy()
            self._unreserved.seal(reservation.nodes)
            # Where the start of the head is not known, no job is known to end before it.
            self._until_s = reservation.wait_s if math.isfinite(reservation.wait_s) else 0.0

    def start(self, row: int, *, defer: bool) -> bool:
        """Start that job if it fits and, with `defer`, gains enough. Returns whether it started."""
        key = self._capacity.requests.keys[row]
        kind = key, self._model.kind(row)
        short = bool(self._remaining_s[row] < self._until_s)
        if (key, short) in self._full:
            return False
        if defer and kind in self._deferred:
            self.reasons[row] = self._deferred[kind]
            return False
        best = best_candidate(self._capacity if short else self._unreserved, self._model, row)
        if best is None:
            self._full.add((key, short))
            return False
        placement, effect = best
        if defer and effect.costs_speed and effect.net < self._threshold:
            self._deferred[kind] = self.reasons[row] = self._why_deferred(row, effect)
            return False
        self._capacity.take(row, placement)
        if self._unreserved is not self._capacity:
            self._unreserved.take(row, placement)
        self._model.add(row, placement)
        self.started[row] = placement
        self.reasons[row] = f"{nodes_text(self._state, placement)}: {self._effect_text(row, effect)}"
        return True

    def _why_deferred(self, row: int, effect: Effect) -> str:
        typical = typical_text(self._model, row)
        at_best = f"deferred: at best {effect_text(self._state, effect)}"
        return f"{at_best}; it starts when the gain is at least {self._threshold:.0%}{typical}"

    def _effect_text(self, row: int, effect: Effect) -> str:
        return f"{effect_text(self._state, effect)}{typical_text(self._model, row)}"
