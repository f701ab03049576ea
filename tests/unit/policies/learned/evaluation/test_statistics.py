"""Means with intervals, against values of Student's t from its tables."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.evaluation.statistics import Mean, change, spent_level, widened


def test_one_value_has_no_interval() -> None:
    assert Mean.of([3.0]) == Mean(3.0, None)


@pytest.mark.parametrize(("count", "t"), [(2, 12.706), (5, 2.776), (10, 2.262), (31, 2.042)])
def test_intervals_are_those_of_students_t(count: int, t: float) -> None:
    values = np.random.default_rng(count).normal(5.0, 2.0, count)
    found = Mean.of(values.tolist())
    assert found.mean == pytest.approx(values.mean())
    assert found.ci95 == pytest.approx(t * values.std(ddof=1) / count**0.5)


@pytest.mark.parametrize(("count", "t"), [(32, 2.0395), (41, 2.0211), (61, 2.0003), (121, 1.9799), (2000, 1.9612)])
def test_intervals_of_many_values_are_those_of_students_t(count: int, t: float) -> None:
    values = np.random.default_rng(count).normal(5.0, 2.0, count)
    assert (Mean.of(values.tolist()).ci95 or 0.0) / (values.std(ddof=1) / count**0.5) == pytest.approx(t, abs=6e-5)


def test_intervals_contain_the_mean_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(1)
    found = [Mean.of(rng.normal(1.0, 1.0, 5).tolist()) for _ in range(4000)]
    share = np.mean([abs(each.mean - 1.0) <= (each.ci95 or 0.0) for each in found])
    assert share == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("values", "level", "t"),
    [
        (2, 0.01, 63.6567),
        (3, 0.001, 31.5991),
        (5, 0.01, 4.60409),
        (6, 0.02, 3.36493),
        (8, 0.001, 5.40788),
        (41, 0.001, 3.55097),
    ],
)
def test_intervals_at_other_levels_are_those_of_students_t(values: int, level: float, t: float) -> None:
    usual = Mean.of(list(range(values))).ci95 or 0.0
    assert widened(usual, values, 0.05) == pytest.approx(usual)
    assert widened(usual, values, level) == pytest.approx(t * np.std(range(values), ddof=1) / values**0.5, rel=2e-4)


def test_the_levels_of_many_comparisons_add_up_to_that_of_one() -> None:
    assert spent_level(1) == 0.025
    assert sum(map(spent_level, range(1, 10_000))) == pytest.approx(0.05, abs=1e-5)
    # of 20 comparisons without any difference, one in a hundred is below zero at its level, many at the usual level
    rng = np.random.default_rng(2)
    usual = corrected = 0
    for _ in range(300):
        found = [Mean.of(rng.normal(0.0, 1.0, 6).tolist()) for _ in range(20)]
        usual += any(each.mean + (each.ci95 or 0.0) < 0 for each in found)
        halves = [widened(each.ci95 or 0.0, 6, spent_level(number)) for number, each in enumerate(found, 1)]
        corrected += any(each.mean + half < 0 for each, half in zip(found, halves, strict=True))
    assert usual > 90
    assert corrected < 12


def test_changes_are_paired() -> None:
    # Traces differ by far more than policies do: in pairs the change is significant all the same.
    found = change([90.0, 9.0, 900.0], [100.0, 10.0, 1000.0])
    assert found.mean == pytest.approx(-0.1)
    assert found.ci95 == pytest.approx(0.0, abs=1e-12)
