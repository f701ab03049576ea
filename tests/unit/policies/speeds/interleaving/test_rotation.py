"""The best rotations of jobs on one link, against all rotations."""

from __future__ import annotations

import random
import tracemalloc
from itertools import product

import numpy as np
import pytest

from policies.speeds.interleaving import rotation
from policies.speeds.interleaving.circle import Circle, Demand, Pattern
from policies.speeds.interleaving.rotation import best_rotations, compatibility


def some_jobs(seed: int, count: int, arcs: int = 24) -> tuple[list[Demand], tuple[int, ...]]:
    rng = random.Random(seed)
    turns = tuple(rng.choice((1, 1, 2, 3, 4)) for _ in range(count))
    circle = Circle(12.0, turns, arcs)
    patterns = [Pattern(12.0 / times, rng.uniform(0.1, 0.7) * 12.0 / times) for times in turns]
    return [circle.demand(job, patterns[job], rng.choice((4.0, 7.0, 10.0))) for job in range(count)], turns


def score_by_hand(demands: list[Demand], rotations: tuple[int, ...], capacity: float) -> float:
    """The definition, angle by angle."""
    arcs = len(demands[0])
    excess = 0.0
    for angle in range(arcs):
        total = sum(demand[(angle - by) % arcs] for demand, by in zip(demands, rotations, strict=True))
        excess += max(0.0, total - capacity)
    return 1.0 - excess / (arcs * capacity)


def best_by_hand(demands: list[Demand], capacity: float) -> float:
    """The best of all rotations of all jobs, repeated ones too."""
    arcs = len(demands[0])
    places = product(range(arcs), repeat=len(demands) - 1)
    totals = [sum((np.roll(d, by) for d, by in zip(demands[1:], at, strict=True)), demands[0]) for at in places]
    return max(compatibility(total, capacity) for total in totals)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_best_of_all_rotations_is_found(seed: int, count: int) -> None:
    demands, turns = some_jobs(seed, count, arcs=24 if count < 3 else 12)
    score, rotations = best_rotations(demands, turns, 10.0)
    assert score == pytest.approx(score_by_hand(demands, rotations, 10.0))
    assert score == pytest.approx(best_by_hand(demands, 10.0))
    assert rotations[0] == 0


@pytest.mark.parametrize("seed", range(12))
def test_of_many_jobs_no_single_one_can_be_rotated_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "MOST_TRIED", 1)
    demands, turns = some_jobs(seed, 4)
    score, rotations = best_rotations(demands, turns, 10.0)
    assert score == pytest.approx(score_by_hand(demands, rotations, 10.0))
    assert score >= score_by_hand(demands, (0, 0, 0, 0), 10.0) - 1e-9
    for job in range(1, 4):
        for by in range(24):
            other = (*rotations[:job], by, *rotations[job + 1 :])
            assert score_by_hand(demands, other, 10.0) <= score + 1e-9


def test_memory_grows_with_the_arcs_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_PASSES", 1)
    demands, turns = some_jobs(1, 3, arcs=1200)
    tracemalloc.start()
    try:
        best_rotations(demands, (1,) * len(turns), 10.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 8 * rotation._AT_ONCE  # all rotations of one job alone would be 1200 * 1200 * 8 = 11.5 MB


def test_halves_fit_beside_each_other_and_more_than_halves_do_not() -> None:
    circle = Circle(1.0, (1, 1), 72)
    half, more = (circle.demand(0, Pattern(1.0, share), 10.0) for share in (0.5, 0.75))
    assert best_rotations([half, half], (1, 1), 10.0) == (1.0, (0, 36))
    assert best_rotations([more, more], (1, 1), 10.0)[0] == pytest.approx(0.5)
    assert best_rotations([more, more], (1, 1), 20.0)[0] == 1.0
    assert best_rotations([more, more, more, more], (1,) * 4, 10.0)[0] == pytest.approx(-1.0)
