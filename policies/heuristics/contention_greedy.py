"""Contention-greedy: start a job where the cluster gains most speed by it, and hold it while that is too little.

Not from a paper: the simple rule that a contention-aware scheduler has to beat. A job's gain at a placement is the speed that
it would have there minus the speed that others would lose by it, both predicted (`policies.contention_model`); it starts at the
best of a handful of placements (`policies.candidates`) if that gains at least `threshold` of its ideal speed.

Nobody is held for ever:
- a job that would neither be slowed down by others nor slow them down is never held, so that one starts whenever nothing runs;
- who has waited for `patience_s` comes before all others, is not held any more, and nobody passes it until it fits.

What is not measured counts with the usual numbers (`policies.training`, `policies.network`), and the reason says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.api import Decision, PolicySpec
from policies.candidates import candidates
from policies.contention_model import ContentionModel, Effect, Law
from policies.model import ClusterState, FloatColumn, IntColumn, Placement
from policies.options import choice, number
from policies.packing import Capacity
from policies.selection import BLOCKED, held_placements

ORDERS = ("fifo", "gpus", "shortest", "area")
WEIGHTS = ("gpus", "jobs")
_PERFECT = 1.0 - 1e-9
"""A gain that no other placement can beat."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The best place that was found."""

    placement: Placement
    effect: Effect
    disturbed: bool
    """Whether it costs anybody anything, the job itself included."""


class ContentionGreedy:
    """Waiting jobs where they add most speed, what they take from others deducted; held while that is below `threshold`."""

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
        patience_s: float = 604_800.0,
        law: str = "auto",
    ) -> None:
        """Jobs by `order` (fifo; gpus: fewest first; shortest: by remaining time; area: both multiplied); speeds of others count by
        `weight`, by their GPUs or as jobs; `law` says what slows jobs down: links, pairs, both, nothing, or auto."""
        self._threshold = number("threshold", threshold, unit="ideal speeds")
        if self._threshold > 1:
            raise ValueError(f"threshold is {threshold}; give a share of a job's ideal speed, from 0 to 1")
        self._order = choice("order", order, ORDERS)
        self._by_gpus = choice("weight", weight, WEIGHTS) == "gpus"
        self._patience_s = number("patience_s", patience_s, unit="seconds")
        self._law = Law(choice("law", law, tuple(each.value for each in Law)))

    def decide(self, state: ClusterState) -> Decision:
        """Start, in order, every waiting job that gains enough where it gains most."""
        overdue, others = self._queue(state)
        weights = state.jobs.num_gpus.tolist() if self._by_gpus else None
        search = _Search(state, ContentionModel(state, self._law, weights), self._threshold)
        for row in overdue.tolist():
            if not search.start(row, hold=False):
                search.reasons[row] = BLOCKED
                break
        else:
            for row in others.tolist():
                search.start(row, hold=True)
        allocation = held_placements(state, state.running) | search.started
        return Decision(allocation, search.reasons, (*overdue.tolist(), *others.tolist()))

    def _queue(self, state: ClusterState) -> tuple[IntColumn, IntColumn]:
        """Those who have waited too long, by submission; and the others, in order."""
        jobs, waiting = state.jobs, state.pending
        waited_s = state.time_s - jobs.submit_time_s[waiting] - jobs.service_s[waiting]
        overdue = waited_s >= self._patience_s
        others = waiting[~overdue]
        keys: dict[str, FloatColumn] = {
            "gpus": jobs.num_gpus.astype(np.float64),
            "shortest": state.remaining_s,
            "area": state.remaining_s * jobs.num_gpus,
            "fifo": np.zeros(len(jobs)),
        }
        return waiting[overdue], others[np.argsort(keys[self._order][others], kind="stable")]


class _Search:
    """One decision while it is made.

    A kind of job that found no place, or was held, is not tried again: what is free gets only less, and what is shared only more.
    """

    def __init__(self, state: ClusterState, model: ContentionModel, threshold: float) -> None:
        self._state = state
        self._model = model
        self._threshold = threshold
        self._capacity = Capacity(state)
        self._full: set[int] = set()
        self._held: dict[tuple[int, tuple[int, float]], str] = {}
        self.started: dict[int, Placement] = {}
        self.reasons: dict[int, str] = {}

    def start(self, row: int, *, hold: bool) -> bool:
        """Start that job if it fits and, with `hold`, gains enough; whether it did."""
        key = self._capacity.requests.keys[row]
        kind = key, self._model.kind(row)
        if key in self._full:
            return False
        if hold and kind in self._held:
            self.reasons[row] = self._held[kind]
            return False
        best = self._best(row)
        if best is None:
            self._full.add(key)
            return False
        if hold and best.disturbed and best.effect.net < self._threshold:
            self._held[kind] = self.reasons[row] = self._why_held(row, best)
            return False
        self._capacity.take(row, best.placement)
        self._model.add(row, best.placement)
        self.started[row] = best.placement
        self.reasons[row] = self._why_here(row, best)
        return True

    def _best(self, row: int) -> _Choice | None:
        model, found = self._model, None
        for placement in candidates(self._capacity, row, model.crowd):
            effect = model.effect(row, placement)
            if found is None or effect.net > found[1].net + 1e-12:
                found = placement, effect
                if effect.net >= _PERFECT:
                    break
        if found is None:
            return None
        placement, effect = found
        disturbed = effect.taken > 1e-12 or effect.own < effect.alone - 1e-12
        return _Choice(placement, effect, disturbed)

    def _why_here(self, row: int, best: _Choice) -> str:
        names, nodes = self._state.nodes.names, best.placement.nodes
        where = f"node {names[nodes[0]]}"
        if len(nodes) > 1:
            where = f"{len(nodes)} nodes, {names[nodes[0]]} to {names[nodes[-1]]}"
        return f"{where}: {self._effect(best.effect)}{self._usual(row)}"

    def _why_held(self, row: int, best: _Choice) -> str:
        return f"held back: at best {self._effect(best.effect)}; {self._threshold:.0%} must be gained{self._usual(row)}"

    def _effect(self, effect: Effect) -> str:
        text = f"would run at {effect.own:.0%} of its ideal speed"
        if effect.loser >= 0:
            text += f" and take {effect.taken:.0%} from others, most from job {self._state.jobs.ids[effect.loser]}"
        return text

    def _usual(self, row: int) -> str:
        return " (nobody measured what it trains: the usual numbers)" if self._model.is_usual(row) else ""
