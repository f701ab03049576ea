"""CASSINI's geometry: the traffic of jobs around one circle.

Source: Rajasekaran, Ghobadi and Akella, "CASSINI: Network-aware job scheduling in machine learning clusters", NSDI 2024. A job's
traffic repeats in every step, so it is drawn around a circle whose perimeter is the time of a step. Jobs of different periods share
a unified circle: its perimeter is the least common multiple of their periods, and each job's traffic is on it several times.
Delaying a job rotates its traffic.

Measured periods have no common multiple that is small. So here a job may be slowed down by a few percent: the perimeter is the
shortest on which each job, waiting at most a share `tolerance` of its period in each step, makes a whole number of turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, lcm

import numpy as np
import numpy.typing as npt

Demand = npt.NDArray[np.float64]
"""GB/s in each of the equal arcs of a circle."""

MOST_TURNS = 12
"""A job that would send more often around the circle is not interleaved."""
_ARCS = 72
"""Least number of arcs: 5 degrees each, as in the paper."""
_ARCS_A_TURN = 24
MOST_ARCS = 2520
"""A circle of more arcs is not used: 2,520 is a multiple of all numbers of turns up to 10. The best rotation of one job takes time
in proportion to the square of the arcs. Without a limit they are up to 27,720."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Pattern:
    """Traffic that repeats: from the beginning of each period the job sends for a while; then it computes.

    Invariant: 0 < `period_s`, and 0 <= `send_s` <= `period_s`.
    """

    period_s: float
    """Seconds of a step without other jobs."""
    send_s: float
    """Seconds of it in which the job sends."""


@dataclass(frozen=True, slots=True)
class Circle:
    """The unified circle of some jobs. Invariant: `arcs` is a multiple of each of `turns`."""

    perimeter_s: float
    turns: tuple[int, ...]
    """How many steps each job makes around the circle."""
    arcs: int
    """Number of equal arcs that it is divided into."""

    def period_s(self, job: int) -> float:
        """Return the seconds between two steps of that job as it is paced: its own period or a little more."""
        return self.perimeter_s / self.turns[job]

    def demand(self, job: int, pattern: Pattern, gbyte_s: float) -> Demand:
        """Return the demand of that job, sending so much from angle 0 on. An arc in which it sends at all counts whole, so
        demands that never exceed a link's capacity here do not exceed it at any time."""
        arcs = self.arcs // self.turns[job]
        sending = min(arcs, ceil(pattern.send_s / self.period_s(job) * arcs - _ROUNDING))
        one = np.zeros(arcs)
        one[:sending] = gbyte_s
        return np.tile(one, self.turns[job])

    def shift_s(self, rotation: int) -> float:
        """Return the seconds of a rotation by so many arcs."""
        return rotation * self.perimeter_s / self.arcs


def unified_circle(periods_s: Sequence[float], tolerance: float) -> Circle | None:
    """Return the shortest circle of at most `MOST_ARCS` on which each job makes up to `MOST_TURNS` whole turns and each step takes
    at most 1 + `tolerance` times as long; None if there is none. With tolerance 0 its perimeter is the least common multiple."""
    perimeters = sorted({turns * period for period in periods_s for turns in range(1, MOST_TURNS + 1)})
    for perimeter in perimeters:
        turns = tuple(int(perimeter / period + _ROUNDING) for period in periods_s)
        if min(turns) < 1 or max(turns) > MOST_TURNS:
            continue
        slowest = max(perimeter / (times * period) for times, period in zip(turns, periods_s, strict=True))
        if slowest <= 1.0 + tolerance + _ROUNDING:
            common = lcm(*turns)
            arcs = common * ceil(max(_ARCS, _ARCS_A_TURN * max(turns)) / common)
            if arcs <= MOST_ARCS:
                return Circle(perimeter, turns, arcs)
    return None
