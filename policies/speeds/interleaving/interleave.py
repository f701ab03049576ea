"""CASSINI's module: scores and time shifts of jobs that share links.

Source: CASSINI (NSDI 2024), its pluggable module. Of a placement's links, those that several jobs use get a score and
rotations (`rotation`); the affinity graph turns these into one shift for each job (`affinity`). The placement's score is
the mean of its links' scores; a placement whose graph has a loop is discarded.

Choices: links that cannot be full count as fit. A link whose jobs are all on another that is no wider, and send no less there, is
left out: what fits the other fits it. Most loops are of this kind, such as two jobs on both uplinks of the same two racks. All
links of jobs that are connected share one unified circle, so that each job has one paced period. A job that sends for less than a
twentieth of its time is left out: its period need not fit the others, and it disturbs them little. Neither such a job nor one on no
link that could be full has a shift: a common shift of 0 would let all of them begin together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from policies.speeds.interleaving.affinity import time_shifts
from policies.speeds.interleaving.circle import Pattern, unified_circle
from policies.speeds.interleaving.rotation import best_rotations

TOLERANCE = 0.05
"""Share of its period that a job may wait in each step so that it keeps its place on the circle: the drift at which the paper's
agents correct a job."""
_LITTLE = 0.05
"""Share of its time up to which a job's sending does not count."""
_FULL = 1.0 + 1e-9
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Link:
    """A link that jobs share."""

    gbyte_s: float
    """Its capacity."""
    sends: tuple[tuple[int, float], ...]
    """The jobs on it, by their place among the patterns, each with the GB/s that it takes while it sends without other jobs."""


@dataclass(frozen=True, slots=True)
class Interleaving:
    """How well jobs fit beside each other."""

    scores: tuple[float, ...]
    """Scores of the links that could be full; none: nothing has to be shifted."""
    shifts_s: tuple[float | None, ...]
    """Delay of each job's sending against a common time; None: the job has no place on the circle, and may begin at any time."""
    periods_s: tuple[float, ...]
    """Least seconds between two steps of each job, so that it keeps its place; without one, those of its own step."""

    @property
    def mean(self) -> float:
        """The mean of the links' scores; 1 where there are none."""
        return sum(self.scores) / len(self.scores) if self.scores else 1.0

    @property
    def least(self) -> float:
        """The least of the links' scores; 1 where there are none."""
        return min(self.scores, default=1.0)

    @property
    def fits(self) -> bool:
        """True if no link is exceeded while the jobs keep their shifts."""
        return self.least > 1.0 - _SAME


@lru_cache(maxsize=4096)
def interleave(
    patterns: tuple[Pattern, ...], links: tuple[Link, ...], tolerance: float = TOLERANCE
) -> Interleaving | None:
    """Return how jobs of these patterns should be shifted; None if they have no common circle, or a loop remains among the links.

    The jobs should be connected by links: they share one circle.
    """
    counts = [pattern.send_s >= _LITTLE * pattern.period_s for pattern in patterns]
    shared = contested([Link(link.gbyte_s, tuple(each for each in link.sends if counts[each[0]])) for link in links])
    shifts: list[float | None] = [None] * len(patterns)
    periods = [pattern.period_s for pattern in patterns]
    if not shared:
        return Interleaving((), tuple(shifts), tuple(periods))
    members = sorted({job for link in shared for job, _ in link.sends})
    circle = unified_circle([periods[job] for job in members], tolerance)
    if circle is None:
        return None
    place_of = {job: place for place, job in enumerate(members)}
    scores, weights = [], []
    for link in shared:
        places = [place_of[job] for job, _ in link.sends]
        demands = [circle.demand(place_of[job], patterns[job], gbyte_s) for job, gbyte_s in link.sends]
        score, rotations = best_rotations(demands, [circle.turns[place] for place in places], link.gbyte_s)
        scores.append(score)
        weights.append({place: circle.shift_s(by) for place, by in zip(places, rotations, strict=True)})
    found = time_shifts(weights, {place: circle.period_s(place) for place in place_of.values()})
    if found is None:
        return None
    for job, place in place_of.items():
        shifts[job], periods[job] = found[place], circle.period_s(place)
    return Interleaving(tuple(scores), tuple(shifts), tuple(periods))


def contested(links: Sequence[Link]) -> list[Link]:
    """Return the links that could be full and that no other link stands for, in their order."""
    full = [
        link for link in links if len(link.sends) > 1 and sum(rate for _, rate in link.sends) > link.gbyte_s * _FULL
    ]
    return [
        link
        for place, link in enumerate(full)
        if not any(_stands_for(other, link, first=at < place) for at, other in enumerate(full) if at != place)
    ]


def _stands_for(other: Link, link: Link, *, first: bool) -> bool:
    """Return whether jobs that fit `other` fit `link`; of two that stand for each other, only the first does."""
    rates = dict(other.sends)
    covers = other.gbyte_s <= link.gbyte_s and all(rates.get(job, 0.0) >= rate for job, rate in link.sends)
    same = covers and other.gbyte_s == link.gbyte_s and rates == dict(link.sends)
    return covers and (first or not same)
