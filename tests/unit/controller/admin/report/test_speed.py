"""Speed of a job over its life, and what it lost beside others, from windows of agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.admin.report.speed import Beside, speed_of
from controller.profiles.store import ProfileStore
from tests.unit.controller.examples.reports import Agents, Training

T0 = 1_000_000 * 30.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


def train(store: ProfileStore, *phases: tuple[int, float, bool]) -> None:
    """Store that many windows of job 1 at each of those speeds, alone or beside job 2."""
    agents, at_s = Agents(), T0
    for windows, steps_per_s, beside in phases:
        jobs = [Training(1, ("n1",), steps_per_s, start_s=T0 - 10_000)]
        jobs += [Training(2, ("n1",), 3.0, script="b.py", start_s=T0 - 10_000)] if beside else []
        store.take(agents.watch(jobs, at_s, at_s + 30 * windows))
        at_s += 30 * windows
    store.compute_windows(at_s + 9999)


def test_a_job_whose_steps_became_longer_has_lost_nothing_to_its_neighbours(store: ProfileStore) -> None:
    # Given a job that made ten steps a second for half an hour, then five for ten minutes, alone all the time
    train(store, (60, 10.0, False), (20, 5.0, False), (40, 5.0, True))
    # When another job has been beside it since, and its speed has stayed the same
    found = speed_of(store, 1, 0.0)
    # Then its report does not blame that job
    assert found is not None and found.loss == pytest.approx(0.0, abs=0.01)
    assert [(other.raw_id, other.loss) for other in found.beside] == [(2, pytest.approx(0.0, abs=0.01))]


def test_each_meeting_is_compared_with_the_speed_alone_of_its_time(store: ProfileStore) -> None:
    # Given a job that lost half of its speed beside another before its steps became longer, and none since
    train(store, (30, 10.0, False), (21, 5.0, True), (10, 10.0, False), (40, 5.0, False), (21, 5.0, True))
    found = speed_of(store, 1, 0.0)
    assert found is not None
    (other,) = found.beside
    assert other == Beside(2, other.windows, pytest.approx(0.25, abs=0.02))
