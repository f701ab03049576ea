"""Search for the assignment of jobs to nodes with the largest value, given the value of a second of each job at full speed.

The value of an *assignment* is the sum of value x predicted speed of its jobs, less the costs of stopping and moving. It is made by
going down an order of jobs: a running job keeps its placement if that is still free; all other jobs get the best of a handful of
placements (`policies.placement.candidates`), by the gain less the speed taken from the jobs before. A job whose gain is below
`threshold` of its value is deferred. The order is by value per GPU^bulk. Then the search tries orders in which one other job comes
first: those whose jobs would have more value than the best assignment if no job slowed another down, the best first. When an order
gives an assignment of more value, the search continues from that order. It ends after `TRIES` orders without improvement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.model import Placement
from policies.placement.best_fit import Capacity
from policies.speeds.best_candidate import best_candidate
from policies.speeds.contention_model import ContentionModel, Effect

TRIES = 8
"""Orders that are tried without improvement before the search ends."""
MOST_PROMISING = 64
"""Number of jobs at the head of the order that may come first instead."""
_GAIN = 1e-12


@dataclass(frozen=True, slots=True)
class Terms:
    """Learned parameters of the search besides values."""

    bulk: float
    """Jobs are ordered by value per GPU to the power of this."""
    threshold: float
    """Minimum gain of a job, as a share of its value."""
    stop: float
    """Cost of stopping or moving a job, as a multiple of its value."""


@dataclass(slots=True)
class Assignment:
    """An assignment of jobs to nodes. Invariant: `total` is the value of `placed`, which fits. Bound: the jobs of one state."""

    placed: dict[int, Placement] = field(default_factory=dict)
    effects: dict[int, Effect] = field(default_factory=dict)
    """Effects of newly placed jobs, as of when they were placed."""
    deferred: dict[int, Effect] = field(default_factory=dict)
    """For each job that would gain too little, the best effect that it could have had."""
    total: float = 0.0


@dataclass(slots=True)
class _Draft:
    """An assignment under construction. Jobs that found no placement, or gained too little, are not tried again: free GPUs only
    decrease, and sharing only increases.

    Bound: lives for one decision.
    """

    capacity: Capacity
    model: ContentionModel
    assignment: Assignment = field(default_factory=Assignment)
    full: set[int] = field(default_factory=set)
    refused: dict[tuple[int, tuple[int, float]], float] = field(default_factory=dict)
    """Largest value of a job that gained too little, by kind."""


class Search:
    """The search of one decision. It is deterministic and depends only on its arguments."""

    def __init__(
        self,
        capacity: Capacity,
        model: ContentionModel,
        own: dict[int, Placement],
        values: Sequence[float],
        terms: Terms,
    ) -> None:
        """`capacity` and `model` exclude the jobs in `own`, which run and may be stopped; in `model` losses count by `values`."""
        self._capacity = capacity
        self._model = model
        self._own = own
        self._values = values
        self._terms = terms
        self._gpus: list[int] = capacity.state.jobs.num_gpus.tolist()
        for row, placement in own.items():
            self._gpus[row] = placement.num_gpus
        self._keys = capacity.requests.keys
        available = capacity.state.nodes.available
        stranded = sum(gpus for placement in own.values() for node, gpus in placement.items() if not available[node])
        self._free = capacity.total_free() + stranded
        self._stopping = terms.stop * sum(values[row] for row in own)
        """Cost of stopping all of them."""
        self._counted = [value * (1.0 + terms.stop * (row in own)) for row, value in enumerate(values)]
        """Value of each job that continues, or starts, without slowdown."""

    def order(self, rows: Sequence[int]) -> list[int]:
        """Return the rows by value per GPU^bulk, where a running job's value includes the cost of a stop; ties by submission."""
        bulk, gpus, counted = self._terms.bulk, self._gpus, self._counted
        return sorted(rows, key=lambda row: (-counted[row] / gpus[row] ** bulk, row))

    def best(self, first: Sequence[int], rows: Sequence[int], effort: int) -> Assignment:
        """Return the best assignment found. Jobs in `first` come before all others and are not deferred.

        `effort` is the number of jobs to consider, summed over all orders; every job is considered at least once.
        """
        order = self.order(rows)
        best = self.assign(first, order)
        effort -= len(order)
        better = True
        while better:
            better = False
            for bound, row in self._promising(first, order, best.total, effort)[:TRIES]:
                effort -= len(order)
                if effort < 0 or bound <= best.total + _GAIN:
                    break
                other = [row, *(each for each in order if each != row)]
                assignment = self.assign(first, other)
                if assignment.total > best.total + _GAIN:
                    best, order, better = assignment, other, True
                    break
        return best

    def assign(self, first: Sequence[int], order: Sequence[int]) -> Assignment:
        """Return the assignment that results from that order."""
        making = _Draft(self._capacity.copy(), self._model.copy())
        room, costs = self._free, 0.0
        for place, row in enumerate((*first, *order)):
            found = self._place(making, row, may_defer=place >= len(first)) if self._gpus[row] <= room else None
            if found is None:
                continue
            placement, cost = found
            making.capacity.take(row, placement)
            making.model.add(row, placement)
            making.assignment.placed[row] = placement
            costs += cost
            room -= self._gpus[row]
        assignment, values, stop = making.assignment, self._values, self._terms.stop
        costs += sum(stop * values[row] for row in self._own if row not in assignment.placed)
        assignment.total = sum(values[row] * making.model.speed(row) for row in assignment.placed) - costs
        return assignment

    def _place(self, making: _Draft, row: int, *, may_defer: bool) -> tuple[Placement, float] | None:
        """Return the placement of that job, and its cost; None if it gets none."""
        terms, value, own = self._terms, self._values[row], self._own.get(row)
        least = -math.inf if not may_defer else terms.threshold if own is None else terms.threshold - terms.stop
        if own is not None and making.capacity.can_place_again(row, own):
            return (own, 0.0) if _gains(making.model.effect(row, own), least) else None
        kind = self._keys[row], making.model.kind(row)
        if kind[0] in making.full or (own is None and may_defer and value <= making.refused.get(kind, 0.0)):
            return None
        best = best_candidate(making.capacity, making.model, row)
        if best is None:
            making.full.add(kind[0])
            return None
        if not _gains(best[1], least):
            if own is None:
                making.refused[kind] = value
                making.assignment.deferred[row] = best[1]
            return None
        making.assignment.effects[row] = best[1]
        return best[0], 0.0 if own is None else terms.stop * value

    def _promising(
        self, first: Sequence[int], order: Sequence[int], best: float, effort: int
    ) -> list[tuple[float, int]]:
        """Return (bound on the value, job that would come first), best first, where the bound is more than `best`."""
        if effort < len(order):
            return []
        found = []
        begin, room = self._count(first, self._free)
        for row in order[1:MOST_PROMISING]:
            if self._gpus[row] > room:
                continue
            rest, _ = self._count((row, *order), room)
            if (bound := begin + rest - self._stopping) > best + _GAIN:
                found.append((bound, row))
        return sorted(found, key=lambda each: (-each[0], each[1]))

    def _count(self, order: Sequence[int], room: int) -> tuple[float, int]:
        """Return the value of these jobs if only the number of GPUs counted, including saved stops, and the GPUs left. The first
        job may occur twice, and counts once."""
        gpus, counted = self._gpus, self._counted
        total, head = 0.0, -1
        for row in order:
            if gpus[row] <= room and row != head:
                room -= gpus[row]
                total += counted[row]
                if room <= 0:
                    break
            if head < 0:
                head = row
        return total, room


def _gains(effect: Effect, threshold: float) -> bool:
    """Return whether the gain is large enough; always True where no job loses speed."""
    return not effect.costs_speed or effect.net > threshold
