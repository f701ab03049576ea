"""A job's speed alone is that of its newest windows, because its steps may become longer or shorter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.profiles import ideal as ideal_module
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


def add_profiles(store: ProfileStore, job_id: int, busy_s: list[float]) -> None:
    """Add profiles of a job on one GPU, in this order."""
    of_job = "time_s, node, job_id, restart, uid, script, signature, gpus, nodes"
    columns = f"{of_job}, steps, step_s, compute_s, exposed_s, hidden_s, kinds"
    row = (T0, "n1", job_id, 0, TRAINED.uid, TRAINED.script, TRAINED.signature, 1, 1, 20, 0.1, 0.1, 0.0, 0.0, "{}")
    marks = ", ".join("?" * (len(row) + 1))
    with store._db as db:
        db.executemany(f"INSERT INTO profile ({columns}, busy_s) VALUES ({marks})", [(*row, value) for value in busy_s])


def test_computing_times_are_those_of_the_newest_profiles_and_the_jobs_own(store: ProfileStore) -> None:
    for job_id, busy_s in ((1, [0.5, 0.2, 0.3, 0.4]), (2, [9.0, 9.0]), (3, [0.7, 0.8, 0.9])):
        add_profiles(store, job_id, busy_s)
    shape = RunShape(1, 1)
    assert store.busy(1, TRAINED, shape, 100) == {1: 0.35, 2: 9.0, 3: 0.8}
    assert store.busy(1, TRAINED, shape, 3) == {1: 0.3, 3: 0.8}
    assert store.busy(4, TRAINED, shape, 4) == {2: 9.0, 3: 0.8}
    assert store.busy(1, TRAINED, RunShape(2, 1), 100) == {}


def test_the_work_for_an_ideal_does_not_grow_with_the_profiles_of_its_kind(
    store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ideal_module, "_RECENT_BUSY", 100)

    def work() -> int:
        counted: list[int] = []
        store._db.set_progress_handler(lambda: counted.append(1), 100)
        assert ideal_of(store, 1, TRAINED, RunShape(1, 1), ("n1",), Priors()) is None
        store._db.set_progress_handler(None, 0)
        return len(counted)

    add_profiles(store, 2, [0.1] * 200)
    before = work()
    add_profiles(store, 3, [0.1] * 20_000)
    assert work() <= before + 5
