"""Current measurements of running jobs: their window, how long they are valid, and their form in a snapshot."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controller.admin.explain.contention_text import contention_facts, pace_text
from controller.observe.observer import Observer
from controller.profiles.current import Contention, contention, jobs_by_node, newest, present_runs, run_of, runs_now
from controller.profiles.ideal import measured_priors
from controller.profiles.reader import ProfileReader
from controller.profiles.sensitivity import Priors
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey, SlurmRun
from controller.slurm.model.job import JobKey, Phase
from controller.state.ledger import Ledger
from tests.unit.controller.examples.build import job, running, snapshot
from tests.unit.controller.examples.cycle_views import scene
from tests.unit.controller.examples.reports import Agents, Training
from tests.unit.controller.examples.slowed import pace

DL = frozenset({"dl"})
T0 = 1_000_000 * 30.0
HERE = {"n1": [1, 2], "n2": [1, 2]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    """Job 1 was alone for a window at 6 steps/s, then is beside job 2: both make 3."""
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        agents = Agents()
        store.take(agents.watch([training(1, 6.0)], T0, T0 + 30))
        store.take(agents.watch([training(1, 3.0), training(2, 3.0, signature="cd" * 32)], T0 + 60, T0 + 90))
        store.compute_windows(T0 + 600)
        yield store


def training(job_id: int, steps_per_s: float, nodes: tuple[str, ...] = ("n1", "n2"), **more: object) -> Training:
    return Training(job_id, nodes, steps_per_s, start_s=T0 - 10_000, **more)  # type: ignore[arg-type]


def known(store: ProfileReader, since_s: float = 0.0) -> dict[RunKey, Contention]:
    return {run: contention(store, item, Priors()) for run, item in newest(store, since_s, HERE).items()}


def test_a_run_is_known_by_slurm_s_own_number_and_its_restarts() -> None:
    assert run_of(running("7_1", on={"n1": 1}, raw_id=12, restarts=3)) == RunKey(12, 3)
    assert run_of(running("7", on={"n1": 1}, raw_id=None)) is None


def test_jobs_by_node_are_those_with_an_allocation() -> None:
    shot = snapshot(
        running("1", on={"n1": 2, "n2": 2}, raw_id=1),
        running("9_3", on={"n2": 1}, raw_id=11, array_job_id=9),
        running("4", on={"n3": 1}, raw_id=None),
        job("5", raw_id=5),
    )
    assert jobs_by_node(shot) == {"n1": [1], "n2": [1, 11]}


def test_a_run_that_completes_may_count_as_the_next_and_is_not_noted() -> None:
    at = running("1", on={"n1": 2}, raw_id=1, restarts=1, start_time_s=50.0)
    shot = snapshot(
        at,
        replace(at, key=JobKey("2", 1), raw_id=2, phase=Phase.COMPLETING),
        replace(at, key=JobKey("3", 1), raw_id=None),
        replace(at, key=JobKey("4", 1), raw_id=4, start_time_s=None),
    )
    assert runs_now(shot) == [SlurmRun(RunKey(1, 1), 50.0)]


def test_the_run_of_a_job_that_was_requeued_is_not_present() -> None:
    again = running("1", on={"n1": 2}, raw_id=1, restarts=1)
    ends = replace(again, key=JobKey("2", 1), raw_id=2, phase=Phase.COMPLETING, restarts=2)
    first = replace(ends, key=JobKey("3", 1), raw_id=3, restarts=0)
    assert present_runs(snapshot(again, ends, first, job("4", raw_id=4))) == {
        RunKey(1, 1),
        RunKey(2, 1),
        RunKey(2, 2),
        RunKey(3, 0),
    }


def test_a_job_alone_has_a_sensitivity_of_one(tmp_path: Path) -> None:
    # Given a job that did six steps a second alone, and now evaluates for two thirds of a window, alone as before
    with closing(ProfileStore(tmp_path / "alone.sqlite")) as store:
        store.take((agents := Agents()).watch([training(1, 6.0)], T0, T0 + 60))
        store.take(agents.watch([training(1, 2.0)], T0 + 90, T0 + 120))
        store.compute_windows(T0 + 600)
        *_, window = store.throughputs()
        found = contention(store, window, Priors())
    assert window.steps_per_s < 3
    assert (found.value, found.source, found.confidence) == (1.0, "alone", 1.0)


def test_the_newest_window_counts(store: ProfileStore) -> None:
    found = known(store)
    assert found[RunKey(1, 0)].value == pytest.approx(2.0)
    assert (found[RunKey(1, 0)].source, found[RunKey(1, 0)].window.start_s) == ("alone", T0 + 60)
    other = found[RunKey(2, 0)]
    assert (math.isnan(other.value), other.confidence, other.source) == (True, 0.0, "")
    assert other.window.steps_per_s == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (HERE, {1, 2}),
        ({"n1": [1, 2], "n2": [1, 2], "n3": [3]}, {1, 2}),
        ({"n1": [1], "n2": [1]}, set()),  # job 2 has ended
        ({"n1": [1, 2], "n2": [1, 2, 3]}, set()),  # job 3 has come
        ({"n1": [2], "n2": [2]}, set()),  # job 1 has ended
    ],
)
def test_it_holds_while_the_same_jobs_are_near(
    store: ProfileStore, present: dict[str, list[int]], expected: set[int]
) -> None:
    assert {run.job_id for run in newest(store, 0.0, present)} == expected


def test_it_does_not_hold_for_ever(store: ProfileStore) -> None:
    assert newest(store, T0 + 61, HERE) == {}


def test_a_snapshot_has_columns_for_known_models(store: ProfileStore) -> None:
    one, two, three = (running(str(at), on={"n1": 2, "n2": 2}, raw_id=at) for at in (1, 2, 3))
    shot, measured = snapshot(one, job("4"), two, three), known(store)
    jobs = Observer().observe(shot, Ledger(), DL, measured).state.jobs
    assert jobs.ids == ("1", "2", "3", "4")
    np.testing.assert_allclose(jobs.contention_sensitivity, [2.0, math.nan, math.nan, math.nan])  # type: ignore[arg-type]
    assert jobs.contention_confidence is not None
    assert (jobs.contention_confidence > 0).tolist() == [True, False, False, False]
    np.testing.assert_allclose(jobs.throughput_steps_per_s, [3.0, 3.0, math.nan, math.nan])  # type: ignore[arg-type]


def test_a_restarted_job_is_another_run(store: ProfileStore) -> None:
    shot = snapshot(running("1", on={"n1": 2, "n2": 2}, raw_id=1, restarts=1))
    assert Observer().observe(shot, Ledger(), DL, known(store)).state.jobs.contention_sensitivity is None


def test_where_nothing_is_known_there_are_no_columns() -> None:
    jobs = Observer().observe(snapshot(running("1", on={"n1": 2}, raw_id=1)), Ledger(), DL).state.jobs
    assert jobs.contention_sensitivity is jobs.contention_confidence is jobs.throughput_steps_per_s is None


def test_the_contention_is_one_sentence(store: ProfileStore) -> None:
    shown = scene(
        running("1", on={"n1": 2, "n2": 2}, raw_id=1),
        running("8_2", on={"n1": 2, "n2": 2}, raw_id=2, array_job_id=8),
        running("3", on={"n3": 1}, raw_id=3),
        measured=known(store),
    )
    one, two, three = (shown.find(name) for name in ("1", "8_2", "3"))
    assert one is not None
    assert two is not None
    assert three is not None
    words = pace_text(shown, one)
    assert words.startswith(
        " It trains at 3 steps/s, 2.00 times slower than alone beside job 8_2 (6 steps/s in 1 window alone;"
    )
    assert pace_text(shown, two) == " It trains at 3 steps/s beside job 1; its speed without neighbours is not known."
    assert contention_facts(shown, one)["beside"] == "8_2"
    assert "contention_sensitivity" not in contention_facts(shown, two)
    assert (pace_text(shown, three), contention_facts(shown, three)) == ("", {})


@pytest.mark.parametrize(
    ("idle", "said"),
    [(0, ""), (1, " 1 of its 4 GPUs had no process of it "), (3, " 3 of its 4 GPUs had no process of it ")],
)
def test_idle_gpus_are_said_with_a_hint(idle: int, said: str) -> None:
    found = pace(1, 1.0)
    found = replace(found, window=replace(found.window, idle_gpus=idle))
    shown = scene(running("1", on={"n1": 2, "n2": 2}, raw_id=1), measured={found.window.run: found})
    job = shown.find("1")
    assert job is not None
    words = pace_text(shown, job)
    assert said in words
    assert ("ask for as many GPUs as the script uses" in words) == bool(idle)
    assert contention_facts(shown, job)["idle_gpus"] == str(idle)


# --- the store, read beside its writer


def test_a_reader_sees_what_is_written_and_writes_nothing(store: ProfileStore, tmp_path: Path) -> None:
    with closing(ProfileReader.open(tmp_path / "profiles.sqlite")) as reader:
        assert known(reader)[RunKey(1, 0)].value == pytest.approx(2.0)
        store.take(Agents("b" * 32).watch([training(1, 3.0)], T0 + 90, T0 + 120))
        store.compute_windows(T0 + 600)
        assert reader.newest_s() == T0 + 90
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._db.execute("DELETE FROM observation")


def test_kinds_are_listed(store: ProfileStore) -> None:
    kinds = store.kinds(10)
    assert sorted((kind.trained.signature[:2], kind.windows, kind.alone, kind.jobs, kind.last_s) for kind in kinds) == [
        ("ab", 2, 1, 1, T0 + 60),
        ("cd", 1, 0, 1, T0 + 60),
    ]
    assert len(store.kinds(1)) == 1
    assert store.beginning_of_last(0) == T0 + 60
    assert store.beginning_of_last(2) == T0
    assert store.beginning_of_last(99) == 0.0
    assert measured_priors(store, store.beginning_of_last(99)) == Priors()


def test_of_an_empty_store_nothing_is_known(tmp_path: Path) -> None:
    with closing(ProfileStore(tmp_path / "empty.sqlite")) as store:
        assert (store.newest_s(), store.kinds(10), store.throughputs_of(1, 10), store.profiles_of(1, 10)) == (
            0.0,
            [],
            [],
            [],
        )
        assert newest(store, 0.0, HERE) == {}
