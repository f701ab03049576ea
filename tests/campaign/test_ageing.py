"""Months of a cluster: no promise is broken, and nothing grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.ageing import Day, levels_off, live


@pytest.mark.timeout(600)
def test_some_days_of_a_cluster() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))  # other tests of the same process may have left some
    days, violations = live(days=2, seed=3, jobs_a_day=80)
    assert list(map(str, violations)) == []
    assert all(day.jobs > 60 and day.descriptors < before + 50 for day in days)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sixty_days_of_a_cluster() -> None:
    days, violations = live(days=60, seed=1)
    assert list(map(str, violations)) == []
    assert levels_off(days) == []


def test_what_grows_is_named() -> None:
    days = [Day(number, 0, 0, 1000 + number * 50, 1.0, 100, 0, 5, 0) for number in range(1, 21)]
    (found,) = levels_off(days)
    assert found.startswith("objects grew from")
