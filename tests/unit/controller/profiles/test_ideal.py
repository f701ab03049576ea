"""A job's speed alone is that of its newest windows, because its steps may become longer or shorter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.profiles.current import contention
from controller.profiles.ideal import ideal_of
from controller.profiles.sensitivity import Ideal, IdealSource, Priors
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey, RunShape, Trained
from tests.unit.controller.examples.reports import SIGNATURE, Agents, Training

T0 = 1_000_000 * 30.0
TRAINED = Trained(1000, "train.py", SIGNATURE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


def alone(store: ProfileStore, *phases: tuple[int, float]) -> float:
    """Store that many windows alone at each of those speeds, one after another; return the end of the last one."""
    agents, at_s = Agents(f"run of {len(phases)}"), T0
    for windows, steps_per_s in phases:
        job = Training(1, ("n1",), steps_per_s, start_s=T0 - 10_000)
        store.take(agents.watch([job], at_s, at_s + 30 * windows))
        at_s += 30 * windows
    store.compute_windows(at_s + 600)
    return at_s


def ideal(store: ProfileStore, at_s: float | None = None) -> Ideal:
    found = ideal_of(store, 1, TRAINED, RunShape(1, 1), ("n1",), Priors(), at_s)
    assert found is not None
    return found


def test_a_job_whose_steps_became_longer_is_not_slowed_down_by_its_neighbours(store: ProfileStore) -> None:
    # Given a job that made ten steps a second for a quarter of an hour, and has made five since, alone all the time
    end_s = alone(store, (30, 10.0), (7, 5.0))
    # When another job comes to its node, and its speed stays the same
    agents = Agents("later")
    store.note_present(end_s + 1, {"n1": [1, 2]})
    store.take(agents.watch([Training(1, ("n1",), 5.0, start_s=T0 - 10_000)], end_s, end_s + 30))
    store.compute_windows(end_s + 600)
    *_, window = store.throughputs(run=RunKey(1, 0))
    found = contention(store, window, Priors())
    # Then the other job has not slowed it down
    assert window.start_s == end_s and not window.alone
    assert (found.source, found.value) == ("alone", pytest.approx(1.0, rel=0.01))


def test_a_short_slow_time_is_no_change(store: ProfileStore) -> None:
    alone(store, (20, 10.0), (2, 2.0), (1, 10.0))
    assert ideal(store).steps_per_s == pytest.approx(10.0, rel=0.01)


def test_of_windows_that_vary_as_usual_many_count_and_only_the_newest(store: ProfileStore) -> None:
    alone(store, *((5, 10.0 + 0.5 * (at % 2)) for at in range(12)))
    found = ideal(store)
    assert found.samples == 40 and found.steps_per_s == pytest.approx(10.25, rel=0.05)


def test_the_confidence_falls_with_the_age_of_the_newest_window_alone(store: ProfileStore) -> None:
    last_s = alone(store, (10, 10.0)) - 30
    fresh, later, old = (ideal(store, last_s + age_s).confidence for age_s in (0.0, 3600.0, 2 * 86_400.0))
    assert fresh == pytest.approx(ideal(store).confidence)
    assert 0.97 * fresh < later < fresh
    assert old == pytest.approx(fresh / 2)


def test_an_old_speed_alone_does_not_hide_a_better_one_of_other_jobs(store: ProfileStore) -> None:
    # Given a job that was alone for the last time five days ago, and others of its kind that were alone today
    last_s = alone(store, (10, 10.0)) - 30
    today_s = T0 + 5 * 86_400
    for other in (3, 4, 5):
        job = Training(other, (f"m{other}",), 5.0, start_s=today_s - 10)
        store.take(Agents(f"run {other}").watch([job], today_s, today_s + 600))
    store.compute_windows(today_s + 9999)
    # When its speed is compared with that alone, then that of the others counts, as it is more certain
    now = ideal(store, today_s + 9000)
    assert (now.source, now.steps_per_s) == (IdealSource.STORE, pytest.approx(5.0, rel=0.01))
    assert now.confidence > 0.8
    # and its own as long as it is new
    assert ideal(store, last_s + 600).source is IdealSource.ALONE
