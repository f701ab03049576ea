"""Means with intervals, against values of Student's t from its tables."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.evaluation.statistics import Mean, change


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


def test_changes_are_paired() -> None:
    # Traces differ by far more than policies do: in pairs the change is significant all the same.
    found = change([90.0, 9.0, 900.0], [100.0, 10.0, 1000.0])
    assert found.mean == pytest.approx(-0.1)
    assert found.ci95 == pytest.approx(0.0, abs=1e-12)
