"""CASSINI's compatibility of the jobs on one link: the best rotations of their traffic.

Source: CASSINI (NSDI 2024), its optimization problem: with the demands of jobs j at angle a, rotated by d_j,

    excess(a) = max(0, sum of demand_j(a - d_j) - capacity),        score = 1 - sum of excess(a) / (number of angles x capacity).

A score of 1 means that the jobs fit beside each other; it may be negative. A job of r turns has all its rotations within an r-th of
the circle. The paper solves this as an optimization problem. Here all rotations are tried where they are at most `MOST_TRIED`, as
they are for two jobs; else the jobs are placed one by one, the largest first, and then each anew until none improves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from policies.speeds.interleaving.circle import Demand

MOST_TRIED = 4096
"""Combinations of rotations up to which the best is found."""
_PASSES = 8
_AT_ONCE = 1 << 16
"""Arcs of rotated demands that are summed at once, at least one row: this bounds the memory."""
_GAIN = 1e-9
"""An excess that is lower by less is not lower."""


def compatibility(demand: Demand, capacity: float) -> float:
    """Return the score of that total demand on a link of so many GB/s."""
    return 1.0 - float(np.maximum(demand - capacity, 0.0).mean()) / capacity


def best_rotations(demands: Sequence[Demand], turns: Sequence[int], capacity: float) -> tuple[float, tuple[int, ...]]:
    """Return the best score on a link of so many GB/s, and the rotation of each job in arcs; the first job has 0.

    Ties go to the smallest rotations where all are tried.
    """
    arcs = len(demands[0])
    choices = [1, *(arcs // times for times in turns[1:])]
    tried = prod(choices)
    found = _all(demands, choices, capacity) if tried <= MOST_TRIED else _one_by_one(demands, choices, capacity)
    total = sum((np.roll(demand, by) for demand, by in zip(demands, found, strict=True)), np.zeros(arcs))
    return compatibility(total, capacity), found


def _all(demands: Sequence[Demand], choices: Sequence[int], capacity: float) -> tuple[int, ...]:
    """Return the best combination of rotations."""
    if len(demands) == 1:
        return (0,)
    last = _rotated(demands[-1], choices[-1])
    best, least = (0,) * len(demands), np.inf
    for rotations in product(*map(range, choices[:-1])):
        total = sum(
            (np.roll(demand, by) for demand, by in zip(demands[:-1], rotations, strict=True)), np.zeros(len(demands[0]))
        )
        place, excess = _least(total, last, capacity)
        if excess < least - _GAIN:
            best, least = (*rotations, place), excess
        if least <= _GAIN:
            break
    return best


def _one_by_one(demands: Sequence[Demand], choices: Sequence[int], capacity: float) -> tuple[int, ...]:
    """Return rotations that no change of a single job improves, or those after a few passes."""
    rotations = [0] * len(demands)
    all_of = [_rotated(demand, choice) for demand, choice in zip(demands, choices, strict=True)]
    total = demands[0].copy()
    least = np.inf
    for job in sorted(range(1, len(demands)), key=lambda each: -float(demands[each].sum())):
        rotations[job], least = _least(total, all_of[job], capacity)
        total += all_of[job][rotations[job]]
    for _ in range(_PASSES):
        before = least
        for job in range(1, len(demands)):
            total -= all_of[job][rotations[job]]
            place, excess = _least(total, all_of[job], capacity)
            if excess < least - _GAIN:
                rotations[job], least = place, excess
            total += all_of[job][rotations[job]]
        if least > before - _GAIN:
            break
    return tuple(rotations)


def _rotated(demand: Demand, choices: int) -> Demand:
    """Return the demand rotated by 0, 1, 2, ... arcs: one row for each. All rows are parts of one array, twice the demand."""
    arcs = len(demand)
    windows: Demand = np.lib.stride_tricks.sliding_window_view(np.concatenate((demand, demand)), arcs)
    return windows[::-1][:choices]


def _least(total: Demand, rotated: Demand, capacity: float) -> tuple[int, float]:
    """Return the first row with the least excess beside that total, and that excess."""
    rows = max(1, _AT_ONCE // len(total))
    excess = np.concatenate(
        [
            np.maximum(np.ascontiguousarray(rotated[begin : begin + rows]) + total - capacity, 0.0).sum(axis=1)
            for begin in range(0, len(rotated), rows)
        ]
    )
    place = int(np.argmin(excess.round(9)))
    return place, float(excess[place])
