"""The store of profiles: nothing twice, nothing lost, late reports, and what a job would do alone."""

from __future__ import annotations

import random
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from controller.profiles import tables
from controller.profiles.ideal import ideal_of, measured_priors
from controller.profiles.reader import ProfileReader
from controller.profiles.sensitivity import IdealSource, Priors, sensitivity
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore, ProfileStoreError, StoreSettings
from controller.profiles.windows import Neighbour, RunKey, RunShape, SlurmRun, Throughput, Trained
from protos.headway.v1 import agent_pb2
from tests.unit.controller.examples.reports import SIGNATURE, Agents, Training

ROOT = Path(__file__).parents[4]
TRAINED = Trained(1000, "train.py", SIGNATURE)
DAY_S = 86400.0
T0 = 1_000_000 * 30.0
"""A window begins here."""
STEP = {"step_s": 0.33, "compute_s": 0.01, "comm_exposed_s": 0.32, "comm_hidden_s": 0.0}


VERSION_1 = f"""
CREATE TABLE receipt (node TEXT NOT NULL, run_id TEXT NOT NULL, number INTEGER NOT NULL, lost INTEGER NOT NULL,
    time_s REAL NOT NULL, PRIMARY KEY (node, run_id)) WITHOUT ROWID;
CREATE TABLE node (name TEXT PRIMARY KEY, link_bits_per_s INTEGER) WITHOUT ROWID;
CREATE TABLE sight (
    time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, num_ranks INTEGER NOT NULL, world_size INTEGER,
    gpus INTEGER, idle_gpus INTEGER, sockets INTEGER, steps INTEGER, last_step_ns INTEGER, monotonic_ns INTEGER NOT NULL);
CREATE INDEX sight_time ON sight (time_s);
CREATE TABLE present (
    slot INTEGER NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, PRIMARY KEY (slot, node, job_id)) WITHOUT ROWID;
CREATE TABLE due (slot INTEGER PRIMARY KEY);
CREATE TABLE observation (
    start_s REAL NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, gpus INTEGER NOT NULL, nodes INTEGER NOT NULL,
    hosts TEXT NOT NULL, steps INTEGER NOT NULL, steps_per_s REAL NOT NULL, idle_gpus INTEGER NOT NULL, sockets INTEGER,
    alone INTEGER NOT NULL, neighbours TEXT NOT NULL, PRIMARY KEY (start_s, job_id, restart)) WITHOUT ROWID;
CREATE INDEX observation_kind ON observation (uid, script, signature, gpus, nodes, alone);
CREATE INDEX observation_job ON observation (job_id, start_s);
CREATE TABLE profile (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, param_bytes INTEGER, world_size INTEGER,
    steps INTEGER NOT NULL, step_s REAL NOT NULL, compute_s REAL NOT NULL, exposed_s REAL NOT NULL, hidden_s REAL NOT NULL,
    kinds TEXT NOT NULL, gpus INTEGER, nodes INTEGER);
CREATE INDEX profile_kind ON profile (uid, script, signature);
CREATE INDEX profile_job ON profile (job_id, restart);
INSERT INTO node VALUES ('n1', 1000000000);
INSERT INTO observation VALUES ({T0}, 1, 0, 1000, 'train.py', '{SIGNATURE}', 2, 2, '["n1", "n2"]', 9, 0.3, 0, NULL, 0,
    '[[[2, 0], [1000, "b.py", "cd"], [4, 2], 3.5]]');
INSERT INTO profile VALUES (1, {T0}, 'n1', 1, 0, 1000, 'train.py', '{SIGNATURE}', 4, 2, 20, 0.3, 0.1, 0.2, 0.0,
    '{{"all_reduce": 4000000.0}}', 2, 2);
PRAGMA user_version = 1;
"""
"""SQL of a database as the first version of the store wrote it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "profiles.sqlite"


@pytest.fixture
def open_store(path: Path) -> Iterator[Callable[..., ProfileStore]]:
    """Opens the same file again and again, as a controller does that is killed in between."""
    with ExitStack() as stores:
        yield lambda *settings: stores.enter_context(closing(ProfileStore(path, *settings)))


@pytest.fixture
def store(open_store: Callable[..., ProfileStore]) -> ProfileStore:
    return open_store()


def training(job_id: int, nodes: tuple[str, ...] = ("n1", "n2"), steps_per_s: float = 6.0, **more: object) -> Training:
    return Training(job_id, nodes, steps_per_s, start_s=more.pop("start_s", T0 - 300), **more)  # type: ignore[arg-type]


def rates(store: ProfileStore) -> list[tuple[int, float, bool]]:
    return [(item.run.job_id, round(item.steps_per_s, 3), item.alone) for item in store.throughputs()]


# --- taking in


def test_a_report_that_comes_again_is_not_taken_again(store: ProfileStore) -> None:
    arrivals = Agents().watch([training(1)], T0, T0 + 60)
    assert all(store.take(arrivals))
    assert not any(store.take(arrivals))
    store.compute_windows(T0 + 600)
    assert rates(store) == [(1, 6.0, True)] * 2


def test_a_restart_of_the_controller_changes_nothing(open_store: Callable[..., ProfileStore]) -> None:
    # given a store that took half of the reports, and was left without a word
    arrivals = Agents().watch([training(1)], T0, T0 + 60)
    half = len(arrivals) // 2
    open_store().take(arrivals[:half])
    # when all come again to the next
    again = open_store()
    assert again.take(arrivals) == [False] * half + [True] * (len(arrivals) - half)
    # then it is as if nothing had happened
    again.compute_windows(T0 + 600)
    assert rates(again) == [(1, 6.0, True)] * 2


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_however_reports_are_resent_each_counts_once(seed: int) -> None:
    rng, agents, job = random.Random(seed), Agents(), training(1)
    arrivals = [agents.arrival("n1", job.profile(T0 + at, STEP, {"all_reduce": 4e6})) for at in range(12)]
    with TemporaryDirectory() as folder, closing(ProfileStore(Path(folder) / "profiles.sqlite")) as store:
        acknowledged = 0
        while acknowledged < len(arrivals):  # each stream resends what is not acknowledged, and may be cut anywhere
            sent = arrivals[acknowledged : rng.randint(acknowledged, len(arrivals))]
            store.take(sent)
            if sent and rng.random() < 0.5:
                acknowledged = store.highest("n1", agents.run_id)
        assert len(list(store.profiles())) == 12
        assert (store.highest("n1", agents.run_id), store.lost("n1", agents.run_id)) == (12, 0)


def test_what_the_agent_gave_up_is_counted(store: ProfileStore) -> None:
    agents = Agents()
    arrivals = [agents.arrival("n1", training(1).report("n1", T0 + at)) for at in range(6)]
    store.take([arrivals[0], arrivals[3], arrivals[4]])
    assert (store.highest("n1", agents.run_id), store.lost("n1", agents.run_id)) == (5, 2)


def test_runs_of_an_agent_are_numbered_apart(store: ProfileStore) -> None:
    first, second = Agents("1" * 32), Agents("2" * 32)
    for agents in (first, second):
        assert store.take([agents.arrival("n1", training(1).report("n1", T0))]) == [True]
    assert store.highest("n1", first.run_id) == store.highest("n1", second.run_id) == 1
    assert store.highest("n2", first.run_id) == 0


def test_a_batch_goes_in_all_or_nothing_at_all(store: ProfileStore) -> None:
    agents = Agents()
    good = agents.arrival("n1", training(1).report("n1", T0))
    bad = Arrival("n1", agents.run_id, agent_pb2.AgentReport(number=2**63), T0)  # more than SQLite can keep
    with pytest.raises((ProfileStoreError, OverflowError)):
        store.take([good, bad])
    assert store.highest("n1", agents.run_id) == 0
    assert store.take([good]) == [True]


def test_a_full_disk_is_an_error_with_the_remedy(store: ProfileStore) -> None:
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    arrivals = Agents().watch([training(1, script="x" * 200)], T0, T0 + 600, every_s=1.0)
    with pytest.raises(ProfileStoreError, match="disk full"):
        store.take(arrivals)
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert all(store.take(arrivals))


@pytest.mark.parametrize(
    "wrong",
    [
        {"step_s": 0.0, "compute_s": 0.0},
        {"step_s": float("nan")},
        {"step_s": 1.0, "comm_exposed_s": float("inf")},
        {"step_s": 1.0, "compute_s": -1.0},
    ],
)
def test_a_profile_that_no_step_can_have_is_left_out(store: ProfileStore, wrong: dict[str, float]) -> None:
    agents = Agents()
    assert store.take([agents.arrival("n1", training(1).profile(T0, wrong, {}))]) == [True]
    assert list(store.profiles()) == []


# --- windows


def test_windows_are_worked_out_when_their_reports_have_come(store: ProfileStore) -> None:
    store.take(Agents().watch([training(1)], T0, T0 + 30))
    assert store.compute_windows(T0 + 44) == 0
    assert store.compute_windows(T0 + 45) == 1
    assert store.compute_windows(T0 + 46) == 0
    assert rates(store) == [(1, 6.0, True)]


def test_a_late_report_corrects_its_window(store: ProfileStore) -> None:
    # given a job on one node, and a neighbour whose reports are held up on the way
    here, late = Agents("1" * 32), Agents("2" * 32)
    one, two = training(1, ("n1",)), training(2, ("n1", "n2"), steps_per_s=2.0)
    store.take(here.watch([one], T0, T0 + 30))
    store.compute_windows(T0 + 100)
    assert rates(store) == [(1, 6.0, True)]
    # when they come after all
    store.take(late.watch([two], T0, T0 + 30, late_s=1000))
    store.compute_windows(T0 + 1100)
    # then the job was not alone
    assert rates(store) == [(1, 6.0, False), (2, 2.0, False)]


def test_what_comes_too_late_leaves_what_is_known(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([training(1)], T0, T0 + 30))
    store.compute_windows(T0 + 100)
    store.prune(T0 + 3 * 3600)
    store.take(Agents("2" * 32).watch([training(2)], T0, T0 + 30, late_s=3 * 3600))
    store.compute_windows(T0 + 4 * 3600)
    assert rates(store) == [(1, 6.0, True)]


def test_a_job_that_slurm_runs_there_is_a_neighbour(store: ProfileStore) -> None:
    store.note_present(T0 + 10, {"n1": [1, 9], "n2": [1]})
    store.take(Agents().watch([training(1)], T0, T0 + 30))
    store.compute_windows(T0 + 600)
    assert rates(store) == [(1, 6.0, False)]


def test_processes_on_gpus_are_neighbours(store: ProfileStore) -> None:
    agents = Agents()
    telemetry = agent_pb2.NodeTelemetry(
        gpus=[agent_pb2.GpuTelemetry(processes=[agent_pb2.GpuProcess(pid=1, job_id=9), agent_pb2.GpuProcess(pid=2)])]
    )
    store.take([agents.arrival("n1", agent_pb2.AgentReport(time_s=T0 + 5, telemetry=telemetry))])
    store.take(agents.watch([training(1)], T0, T0 + 30))
    store.compute_windows(T0 + 600)
    assert [[other.run.job_id for other in item.neighbours] for item in store.throughputs()] == [[9]]


def test_observations_of_one_run(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([training(1), training(2, ("n3",))], T0, T0 + 60))
    store.take(agents.watch([training(1, ("n4",), restart=1), training(2, ("n3",))], T0 + 60, T0 + 120))
    store.compute_windows(T0 + 600)
    assert len(list(store.throughputs())) == 8
    found = list(store.throughputs(T0 + 90, RunKey(1, 1)))
    assert [(item.start_s, item.nodes) for item in found] == [(T0 + 90, ("n4",))]


def test_clocks_of_nodes_are_set_right(store: ProfileStore) -> None:
    # given a node whose clock is 40 s behind
    for arrival in Agents().watch([training(1, ("n1",))], T0, T0 + 60):
        arrival.report.time_s -= 40
        store.take([Arrival("n1", arrival.run_id, arrival.report, arrival.time_s, offset_s=40.0)])
    store.compute_windows(T0 + 600)
    assert [item.start_s for item in store.throughputs()] == [T0, T0 + 30]


# --- runs, by Slurm's word


def test_a_late_report_of_an_earlier_run_counts_to_that(store: ProfileStore) -> None:
    # Given a job that Slurm started twice, which says of both that they are its third
    earlier, later = training(1, restart=2), training(1, ("n3", "n4"), 3.0, restart=2, start_s=T0 + 60)
    store.note_present(T0, {"n1": [1], "n2": [1]}, [SlurmRun(RunKey(1, 0), T0 - 300)])
    store.note_present(T0 + 61, {"n3": [1], "n4": [1]}, [SlurmRun(RunKey(1, 1), T0 + 60)])
    store.take(Agents("1" * 32).watch([later], T0 + 60, T0 + 90))
    store.compute_windows(T0 + 600)

    # When the agents of its first nodes report at last
    late = Agents("2" * 32)
    store.take(late.watch([earlier], T0, T0 + 30, late_s=1000))
    store.take([late.arrival("n1", earlier.profile(T0 + 20, STEP, {}), late_s=1000)])
    store.compute_windows(T0 + 2000)

    # Then each run has its own
    found = [(item.run, item.nodes, round(item.steps_per_s, 3)) for item in store.throughputs()]
    assert found == [(RunKey(1, 0), ("n1", "n2"), 6.0), (RunKey(1, 1), ("n3", "n4"), 3.0)]
    assert [row.run for row in store.profiles()] == [RunKey(1, 0)]


def test_earlier_reports_are_assigned_by_slurms_run(store: ProfileStore) -> None:
    agents, job = Agents(), training(1, restart=7)
    store.take(agents.watch([job], T0, T0 + 30))
    store.take([agents.arrival("n1", job.profile(T0 + 10, STEP, {}))])
    store.compute_windows(T0 + 600)
    assert [item.run for item in store.throughputs()] == [RunKey(1, 7)]
    store.note_present(T0 + 601, {"n1": [1]}, [SlurmRun(RunKey(1, 0), T0 - 300)])
    assert [item.run for item in store.throughputs()] == [RunKey(1, 0)]
    assert [(row.run, row.shape) for row in store.profiles()] == [(RunKey(1, 0), RunShape(2, 2))]


def test_a_profile_of_a_run_that_slurm_shows_later_has_the_shape_of_that_run(store: ProfileStore) -> None:
    # Given a job whose first run on two nodes was measured, and which was requeued onto one while the controller was away
    agents, first = Agents(), training(1)
    store.note_present(T0 - 300, {"n1": [1], "n2": [1]}, [SlurmRun(RunKey(1, 0), T0 - 300)])
    store.take(agents.watch([first], T0, T0 + 30))
    store.compute_windows(T0 + 200)
    again = training(1, ("n1",), restart=1, start_s=T0 + 300)
    # When its agent's profile arrives before Slurm shows the new run
    store.take([agents.arrival("n1", again.profile(T0 + 330, STEP, {}))])
    store.note_present(T0 + 400, {"n1": [1]}, [SlurmRun(RunKey(1, 1), T0 + 300)])
    # Then it has no shape until the new run is measured, and then the shape of that
    assert [(row.run, row.shape) for row in store.profiles()] == [(RunKey(1, 1), None)]
    store.take(agents.watch([again], T0 + 420, T0 + 450))
    store.compute_windows(T0 + 600)
    assert [(row.run, row.shape) for row in store.profiles()] == [(RunKey(1, 1), RunShape(1, 1))]


def test_old_runs_are_dropped_and_those_that_still_run_are_not(store: ProfileStore) -> None:
    store.note_present(T0, {}, [SlurmRun(RunKey(job, 0), T0) for job in (1, 2)])
    store.note_present(T0 + 91 * DAY_S, {"n1": [2]}, [SlurmRun(RunKey(2, 0), T0)])
    store.prune(T0 + 91 * DAY_S)
    assert store._db.execute("SELECT job_id FROM run").fetchall() == [(2,)]


# --- what a job would do alone


def alone_and_together(store: ProfileStore) -> None:
    """Job 1 alone for 2 windows at 6 steps/s, then beside job 2 at 3 for two."""
    agents = Agents()
    store.take(agents.watch([training(1)], T0, T0 + 60))
    slow = training(1, steps_per_s=3.0, start_s=T0 - 10_000)
    store.take(agents.watch([slow, training(2, steps_per_s=3.1, script="other.py")], T0 + 60, T0 + 120))
    store.compute_windows(T0 + 600)


def seen(store: ProfileStore, run: RunKey, since_s: float) -> list[float]:
    return [each.steps_per_s for each in store.throughputs(since_s, run)]


def test_the_ideal_is_the_job_s_own_where_it_was_alone(store: ProfileStore) -> None:
    alone_and_together(store)
    found = ideal_of(store, 1, TRAINED, RunShape(2, 2), ("n1", "n2"), Priors())
    assert found is not None
    assert (found.source, round(found.steps_per_s, 3), found.samples) == (IdealSource.ALONE, 6.0, 2)


@pytest.mark.usefixtures("store")
def test_of_a_job_s_own_windows_those_with_neighbours_are_not_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        values = (7, *tables.kind(TRAINED, RunShape(4, 1)), 40)
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {tables.OWN_ALONE}", values)]
    # and they are in the order of time already: there is no second step that sorts
    assert plan == ["SEARCH observation USING INDEX observation_own (job_id=?)"]


def test_sensitivity_is_the_ideal_over_what_is_seen_now(store: ProfileStore) -> None:
    alone_and_together(store)
    ideal = ideal_of(store, 1, TRAINED, RunShape(2, 2), ("n1", "n2"), Priors())
    found = sensitivity(median(seen(store, RunKey(1, 0), T0 + 60)), ideal)
    assert found is not None
    assert (round(found.value, 3), found.ideal.source) == (2.0, IdealSource.ALONE)
    undisturbed = sensitivity(median(seen(store, RunKey(1, 0), T0)), ideal)
    assert undisturbed is not None
    assert 1.0 < undisturbed.value < 2.0  # over all four windows
    # The other job was never alone.
    (other,) = {(each.trained, each.shape, each.nodes) for each in store.throughputs(T0, RunKey(2, 0))}
    assert ideal_of(store, 2, *other, Priors()) is None
    assert seen(store, RunKey(1, 0), T0 + 120) == []


def test_else_that_of_jobs_of_its_kind_and_shape(store: ProfileStore) -> None:
    alone_and_together(store)
    found = ideal_of(store, 7, TRAINED, RunShape(2, 2), ("n1", "n2"), Priors())
    assert found is not None
    assert (found.source, round(found.steps_per_s, 3), found.samples) == (IdealSource.STORE, 6.0, 1)


@pytest.mark.parametrize(
    ("trained", "shape"),
    [
        (TRAINED, RunShape(4, 2)),
        (Trained(1001, "train.py", SIGNATURE), RunShape(2, 2)),
        (Trained(1000, "train.py", "cd" * 32), RunShape(2, 2)),
        (Trained(1000, "other.py", SIGNATURE), RunShape(2, 2)),
        (Trained(1000, "train.py", SIGNATURE, 64), RunShape(2, 2)),
        (TRAINED, RunShape(2, 2, "H100")),
    ],
)
def test_of_another_kind_or_shape_nothing_is_known(store: ProfileStore, trained: Trained, shape: RunShape) -> None:
    alone_and_together(store)
    assert ideal_of(store, 7, trained, shape, ("n1", "n2"), Priors()) is None


def gpus_of(model: str) -> agent_pb2.NodeTelemetry:
    return agent_pb2.NodeTelemetry(gpus_read=True, gpus=[agent_pb2.GpuTelemetry(index=0, name=model)])


def test_gpus_of_other_models_are_not_compared(open_store: Callable[..., ProfileStore]) -> None:
    # Given one script on H100s at 6 steps/s and on V100s at 2; which node has which is remembered over a restart
    agents, store = Agents(), open_store()
    for node, model in (("n1", "H100"), ("n2", "H100"), ("n3", "V100"), ("n4", "V100")):
        store.take([agents.arrival(node, agent_pb2.AgentReport(time_s=T0, telemetry=gpus_of(model)))])
    store = open_store()
    store.take(agents.watch([training(1), training(2, ("n3", "n4"), 2.0)], T0, T0 + 60))
    store.compute_windows(T0 + 600)
    ideals = {
        model: ideal_of(store, 7, TRAINED, RunShape(2, 2, model), ("n1", "n2"), Priors()) for model in ("H100", "V100")
    }
    assert {model: ideal and round(ideal.steps_per_s, 3) for model, ideal in ideals.items()} == {
        "H100": 6.0,
        "V100": 2.0,
    }
    assert sorted((kind.shape.gpu_model, kind.windows) for kind in store.kinds(9)) == [("H100", 2), ("V100", 2)]


def test_a_node_keeps_the_rate_of_its_link_when_its_gpus_are_reported_and_the_other_way_round(
    store: ProfileStore,
) -> None:
    store.note_node("n1", 10**9)
    store.take([Agents().arrival("n1", agent_pb2.AgentReport(time_s=T0, telemetry=gpus_of("H100")))])
    assert store.link_bytes_per_s(["n1"]) == 125e6
    store.note_node("n1", 2 * 10**9)
    assert store._db.execute("SELECT * FROM node").fetchall() == [("n1", 2 * 10**9, '{"0": "H100"}')]


def test_nodes_are_forgotten_with_the_receipts_of_their_agents(store: ProfileStore) -> None:
    store.note_node("n1", 10**9, "run1", T0)
    store.note_node("n2", 10**9, "run2", T0)
    kept_s = store.settings.keep_receipts_days * 86400
    assert store.highest("n1", "run1") == 0  # a hello is no report
    store.prune(T0 + kept_s - 60)
    assert store.link_bytes_per_s(["n1", "n2"]) == 125e6
    store.note_node("n2", 10**9, "run2", T0 + kept_s)  # its agent connects again
    store.prune(T0 + kept_s + 60)
    assert store._db.execute("SELECT name FROM node").fetchall() == [("n2",)]


def test_jobs_whose_gpus_compute_for_another_time_are_not_compared(store: ProfileStore) -> None:
    # Given a script that is run with two batch sizes, which nobody tells: its GPUs take 10 ms for one, and 40 for the other
    agents = Agents()
    for job_id, steps_per_s, busy_s in ((1, 6.0, 0.010), (2, 6.1, 0.011), (3, 2.0, 0.040)):
        job = training(job_id, (f"a{job_id}", f"b{job_id}"), steps_per_s)
        store.take([agents.arrival(job.nodes[0], job.profile(T0 - 1, {**STEP, "busy_s": busy_s}, {}))])
        store.take(agents.watch([job], T0, T0 + 60))
    # and two that were never alone, of which one has reported how long its GPUs take
    together = [training(job_id, ("n1", "n2"), 1.5) for job_id in (7, 8)]
    store.take(agents.watch(together, T0, T0 + 60))
    store.take([agents.arrival("n1", together[0].profile(T0 + 10, {**STEP, "busy_s": 0.041}, {}))])
    store.compute_windows(T0 + 600)

    def ideal(job_id: int) -> tuple[float, int] | None:
        found = ideal_of(store, job_id, TRAINED, RunShape(2, 2), ("n1", "n2"), Priors())
        return found and (round(found.steps_per_s, 3), found.samples)

    # Then it is compared with those of its own; and of the other it is not known with whom it could be
    assert ideal(7) == (2.0, 1)
    assert ideal(8) is None


def test_else_it_is_predicted_from_the_profile(store: ProfileStore) -> None:
    # given two jobs that share 200 Mbit/s from the start, and a profile of one
    agents = Agents()
    for node in ("n1", "n2"):
        store.note_node(node, 200_000_000)
    one, two = training(1, steps_per_s=3.0), training(2, steps_per_s=3.0, script="other.py")
    store.take(agents.watch([one, two], T0, T0 + 60))
    store.take([agents.arrival("n1", one.profile(T0 + 61, STEP, {"all_reduce": 4e6}))])
    store.compute_windows(T0 + 600)
    # then 4 MB take 160 ms of a free link, and computing 10
    found = ideal_of(store, 1, TRAINED, RunShape(2, 2), ("n1", "n2"), Priors(prediction_error=0.2))
    assert found is not None
    assert (found.source, found.confidence, found.samples) == (IdealSource.PREDICTED, 0.8, 1)
    assert found.steps_per_s == pytest.approx(1 / 0.17)
    # and on links of unknown rate nothing is predicted
    assert ideal_of(store, 1, TRAINED, RunShape(2, 2), ("n1", "n9"), Priors()) is None


def test_what_a_job_of_one_node_would_do_alone_is_not_predicted(store: ProfileStore) -> None:
    # Given two jobs on one node, never alone, and a profile of one: it was taken beside the other
    agents = Agents()
    store.note_node("n1", 200_000_000)
    one, two = training(1, ("n1",)), training(2, ("n1",), script="other.py")
    store.take(agents.watch([one, two], T0, T0 + 60))
    store.take([agents.arrival("n1", one.profile(T0 + 61, STEP, {"all_reduce": 4e6}))])
    store.compute_windows(T0 + 600)
    (seen, *_) = store.throughputs(run=RunKey(1, 0))
    assert store.profiles_like(seen.trained, seen.shape, 1)
    assert ideal_of(store, 1, seen.trained, seen.shape, ("n1",), Priors()) is None


def test_a_model_that_is_not_known_is_only_compared_with_itself(store: ProfileStore) -> None:
    store.take(Agents().watch([training(1, signature="")], T0, T0 + 60))
    store.compute_windows(T0 + 600)
    unknown = Trained(1000, "train.py", "")
    assert ideal_of(store, 1, unknown, RunShape(2, 2), ("n1", "n2"), Priors()) is not None
    assert ideal_of(store, 7, unknown, RunShape(2, 2), ("n1", "n2"), Priors()) is None


def test_a_profile_from_before_the_first_window_learns_its_shape(store: ProfileStore) -> None:
    agents = Agents()
    store.take([agents.arrival("n1", training(1).profile(T0 - 1, STEP, {"all_reduce": 4e6}))])
    assert [row.shape for row in store.profiles()] == [None]
    store.take(agents.watch([training(1)], T0, T0 + 30))
    store.compute_windows(T0 + 600)
    (row,) = store.profiles()
    assert (row.shape, row.kinds, row.param_bytes) == (RunShape(2, 2), {"all_reduce": 4e6}, 4_000_000)


def test_what_stays_within_a_node_is_stored_apart(store: ProfileStore) -> None:
    agents, job = Agents(), training(1)
    step = STEP | {"local_exposed_s": STEP["comm_exposed_s"] / 2, "local_hidden_s": 9.0}
    sizes = {"all_reduce": 4e6, "all_gather": 1e6}
    store.take(
        [
            agents.arrival("n1", job.profile(T0, step, sizes, {"all_reduce": 1e6})),
            agents.arrival("n1", job.profile(T0 + 1, STEP, sizes)),  # of an earlier hook
        ]
    )
    divided, whole = store.profiles()
    # a kind that the report does not divide counts whole, and no part of a time is longer than it
    assert (divided.kinds, divided.link_kinds) == (sizes, {"all_reduce": 1e6, "all_gather": 1e6})
    assert divided.local_exposed_s == pytest.approx(STEP["comm_exposed_s"] / 2)
    assert divided.local_hidden_s == STEP["comm_hidden_s"]
    assert (whole.kinds, whole.link_kinds, whole.local_exposed_s, whole.local_hidden_s) == (sizes, None, None, None)


def test_errors_are_those_that_were_measured(store: ProfileStore) -> None:
    assert measured_priors(store, 0.0) == Priors()
    # given three kinds of jobs, each predicted 1/0.17 and found alone at 5.0
    agents = Agents()
    for at in range(3):
        nodes = (f"a{at}", f"b{at}")
        for node in nodes:
            store.note_node(node, 200_000_000)
        job = training(at, nodes, steps_per_s=5.0, script=f"{at}.py")
        store.take([agents.arrival(nodes[0], job.profile(T0 - 1, STEP, {"all_reduce": 4e6}))])
        store.take(agents.watch([job], T0, T0 + 120))
    store.compute_windows(T0 + 600)
    found = measured_priors(store, 0.0)
    assert found.prediction_error == pytest.approx(1 / 0.17 / 5.0 - 1)
    assert found.window_spread == pytest.approx(0.0, abs=1e-6)
    assert found.job_spread == Priors().job_spread  # one job of each kind says nothing


# --- the file


def test_a_file_of_the_first_version_is_taken_over(path: Path) -> None:
    # Given a file as version 1 left it
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(VERSION_1)
    # When this version opens it, and again
    for _ in range(2):
        with closing(ProfileStore(path)) as store:
            # Then all of it is there
            (seen,) = store.throughputs()
            near = Neighbour(RunKey(2, 0), Trained(1000, "b.py", "cd"), RunShape(4, 2), 3.5)
            assert (seen.run, seen.trained, seen.shape) == (RunKey(1, 0), TRAINED, RunShape(2, 2))
            assert (seen.nodes, seen.steps, seen.steps_per_s, seen.neighbours) == (("n1", "n2"), 9, 0.3, (near,))
            (row,) = store.profiles()
            assert (row.shape, row.kinds, row.busy_s) == (RunShape(2, 2), {"all_reduce": 4e6}, None)
            assert (row.link_kinds, row.local_exposed_s, row.local_hidden_s) == (None, None, None)
            assert store.link_bytes_per_s(["n1"]) == 125e6
    # and new windows come beside the old
    with closing(ProfileStore(path)) as store:
        store.take(Agents().watch([training(1)], T0 + 30, T0 + 60))
        store.compute_windows(T0 + 600)
        assert [item.start_s for item in store.throughputs()] == [T0, T0 + 30]


def test_a_file_of_the_version_before_groups_were_known_is_taken_over(path: Path) -> None:
    # Given a file of version 3, whose profiles do not divide what stays within a node
    with closing(ProfileStore(path)) as store:
        store.take([Agents().arrival("n1", training(1).profile(T0, STEP, {"all_reduce": 4e6}))])
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for column in ("link_kinds", "local_exposed_s", "local_hidden_s"):
            db.execute(f"ALTER TABLE profile DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 3")
    # When this version opens it, then its profiles are there, and new ones come beside them
    with closing(ProfileStore(path)) as store:
        agents = Agents("b" * 32)
        store.take([agents.arrival("n1", training(1).profile(T0 + 9, STEP, {"all_reduce": 4e6}, {"all_reduce": 0.0}))])
        assert [row.link_kinds for row in store.profiles()] == [None, {"all_reduce": 0.0}]


def test_a_controller_that_dies_while_it_takes_over_a_file_leaves_the_old(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(VERSION_1)
    with monkeypatch.context() as broken:
        statements = ("INSERT INTO node (name) VALUES ('n1')",)  # which is there
        broken.setattr(tables, "STORE", replace(tables.STORE, statements=statements))
        with pytest.raises(ProfileStoreError):
            ProfileStore(path)
    with closing(ProfileStore(path)) as store:
        assert len(list(store.throughputs())) == 1


def test_old_rows_are_dropped(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([training(1)], T0, T0 + 60))
    store.take([agents.arrival("n1", training(1).profile(T0, STEP, {}))])
    store.compute_windows(T0 + 600)
    assert store._gpu_models_of("n1") == {}
    store.prune(T0 + 3 * 3600)
    assert store._db.execute("SELECT COUNT(*) FROM sight").fetchone() == (0,)
    assert len(rates(store)) == 2
    assert not store._gpu_models  # nodes may have left the cluster for good
    store.prune(T0 + 91 * DAY_S)
    assert (rates(store), list(store.profiles()), store.highest("n1", agents.run_id)) == ([], [], 0)


def test_a_job_that_profiles_without_end_fills_no_disk(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_PROFILES", 3)
    agents = Agents()
    for turn in range(2):
        for job_id in (1, 2):
            for number in range(5):
                made = training(job_id).profile(T0 + turn * 100 + number, STEP, {})
                store.take([agents.arrival("n1", made), agents.arrival("n2", made)])
        store.prune(T0 + 1000)
        rows = store._db.execute("SELECT job_id, node, time_s FROM profile ORDER BY job_id, node, id").fetchall()
        # the newest of each job on each node are kept
        assert len(rows) == 12
        assert [row[2] - T0 for row in rows[:3]] == [turn * 100 + number for number in (2, 3, 4)]
        assert {row[:2] for row in rows} == {(1, "n1"), (1, "n2"), (2, "n1"), (2, "n2")}


@pytest.mark.parametrize("at_once", [True, False])
def test_of_long_runs_old_windows_are_thinned_out(path: Path, at_once: bool) -> None:
    # Given a run of half a day that is alone in its first hour and every tenth half hour, and a run of ten windows
    kept = StoreSettings(window_s=30.0, keep_all_hours=3.0, keep_first=20, keep_one_in=20)
    long = {T0 + 30 * slot: slot < 120 or slot % 600 < 60 for slot in range(1440)}
    short = {T0 + 30 * slot: True for slot in range(100, 110)}
    neighbour = (Neighbour(RunKey(9, 0), None, None, None),)
    with closing(ProfileStore(path, kept)) as store, closing(sqlite3.connect(path, isolation_level=None)) as db:
        for job_id, windows in ((1, long), (2, short)):
            for start_s, alone in windows.items():
                run, near = RunKey(job_id, 0), () if alone else neighbour
                item = Throughput(start_s, run, TRAINED, RunShape(2, 2), ("n1", "n2"), 9, 0.3, 0, None, near)
                tables.insert_throughput(db, item)

        # When half a day has passed
        end_s = T0 + DAY_S / 2
        for now_s in [end_s] if at_once else [T0 + 3600 * hour for hour in range(1, 13)]:
            store.prune(now_s)

        # Then of what is older than three hours the first twenty alone and beside others are there, and one in twenty
        found = {run: [each.start_s for each in store.throughputs(run=RunKey(run, 0))] for run in (1, 2)}
    old = [start_s for start_s in long if start_s < end_s - 3 * 3600]
    first = {alone: [start_s for start_s in old if long[start_s] is alone][:20] for alone in (True, False)}
    wanted = {*first[True], *first[False], *(start_s for start_s in old if start_s / 30 % 20 == 0)}
    assert found[1] == [start_s for start_s in long if start_s in wanted or start_s >= end_s - 3 * 3600]
    assert found[2] == list(short)


def test_beyond_the_maximum_of_windows_old_days_are_thinned_out_more_before_any_run_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given one run of thirty windows on each of twenty days
    with (
        closing(ProfileStore(path, StoreSettings(keep_first=20, keep_one_in=20))) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as db,
    ):
        for day in range(20):
            for window in range(30):
                start_s = T0 + day * DAY_S + 30 * window
                shape, nodes = RunShape(2, 2), ("n1", "n2")
                tables.insert_throughput(
                    db, Throughput(start_s, RunKey(day, 0), TRAINED, shape, nodes, 9, 0.3, 0, None, ())
                )

        def pruned(most: int) -> list[int]:
            """Return the number of windows of each run when there may be so many, and log."""
            monkeypatch.setattr(tables, "MAX_OBSERVATIONS", most)
            store.prune(T0 + 21 * DAY_S)
            return [len(list(store.throughputs(run=RunKey(day, 0)))) for day in range(20)]

        with capture_logs() as logs:
            enough, fewer, cut, again = (pruned(most) for most in (1000, 300, 40, 20))
    # Then there are as many as may be, the newest run has most, and every run has the first of its windows
    assert min(enough) >= 20
    assert 270 - 20 <= sum(fewer) <= 270 and min(fewer) >= 4 and max(fewer) == fewer[-1] >= 20
    # And only when that is not enough, the oldest runs go, which is logged once
    assert sum(cut) <= 36 and cut[0] == 0 < cut[-1] and sum(again) <= 18
    assert [(entry["event"], entry["keep_days"]) for entry in logs] == [("windows_cut_short", 90.0)]
    assert 1 <= logs[0]["kept_days"] < 20


def test_old_windows_are_thinned_out_after_an_attempt_that_failed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(ProfileStore(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as db:
        for window in range(100):
            shape, nodes = RunShape(2, 2), ("n1", "n2")
            tables.insert_throughput(
                db, Throughput(T0 + 30 * window, RunKey(1, 0), TRAINED, shape, nodes, 9, 0.3, 0, None, ())
            )

        def full(_db: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch, pytest.raises(ProfileStoreError):
            patch.setattr(tables, "limit_rows", full)
            store.prune(T0 + DAY_S)
        store.prune(T0 + DAY_S)
        assert 20 <= len(list(store.throughputs(run=RunKey(1, 0)))) <= 25


def test_the_file_is_the_controller_s_alone(path: Path) -> None:
    ProfileStore(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_another_version_s_file_is_kept_aside(path: Path) -> None:
    ProfileStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with closing(ProfileStore(path)) as store:
        store.take(Agents().watch([training(1)], T0, T0 + 30))
    (aside,) = (each for each in path.parent.glob("*.schema-99-*Z"))
    assert aside.read_bytes() == before


def test_a_damaged_file_is_kept_aside_and_a_link_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("no database, but long enough to be taken for one" * 10)
    with closing(ProfileStore(path)) as store:
        assert list(store.throughputs()) == []
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(ProfileStoreError, match="cannot be opened"):
        ProfileStore(path)


def test_damage_while_it_is_open_costs_what_was_measured_and_no_report(path: Path) -> None:
    # given a store at work, and a reader
    with closing(ProfileStore(path)) as store:
        agents = Agents()
        store.take(agents.watch([training(1)], T0, T0 + 30))
        store.compute_windows(T0 + 600)
        reader = ProfileReader.open(path)
        assert reader.newest(path) is reader
        # when a table is gone
        store._db.execute("DROP TABLE receipt")
        late = agents.watch([training(1)], T0 + 630, T0 + 660)
        with pytest.raises(ProfileStoreError):
            store.take(late)
        # then what is sent again is stored in a new file, which the reader takes
        assert all(store.take(late))
        store.compute_windows(T0 + 1200)
        reader = reader.newest(path)
        assert [item.start_s for item in reader.throughputs()] == [T0 + 630]
        reader.close()


def test_a_damaged_file_that_cannot_be_set_aside_is_replaced_by_a_later_use(path: Path) -> None:
    # given a store whose file is damaged, and whose folder is out of reach
    with closing(ProfileStore(path)) as store, capture_logs() as logs:
        arrivals = Agents().watch([training(1)], T0, T0 + 30)
        store._db.execute("DROP TABLE receipt")
        away = path.parent.rename(path.parent.with_name("away"))
        path.parent.touch()
        # when it is used several times, then every use is refused with the reason
        for _ in range(3):
            with pytest.raises(ProfileStoreError, match=r"cannot be opened: .*Not a directory"):
                store.take(arrivals)
        with pytest.raises(ProfileStoreError, match="cannot be opened"):
            store.highest("n1", arrivals[0].run_id)
        # and when the folder is back, a new file takes what is sent again
        path.parent.unlink()
        away.rename(path.parent)
        assert all(store.take(arrivals))
        assert len(list(path.parent.glob("*.damaged-*Z"))) == 1
    assert [log["event"] for log in logs] == ["profiles_damaged", "profiles_set_aside"]


FULL = """
import sys
from pathlib import Path
from tests.unit.controller.profiles.test_store import damaged_on_a_full_disk
damaged_on_a_full_disk(Path(sys.argv[1]))
"""


def damaged_on_a_full_disk(path: Path) -> None:
    """Damage a store while files cannot grow; in a process of its own, because the limit is for all its files."""
    store = ProfileStore(path)
    arrivals = Agents().watch([training(1)], T0, T0 + 30)
    store._db.execute("DROP TABLE receipt")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    for _ in range(3):
        with pytest.raises(ProfileStoreError, match=r"cannot be opened: .*free space"):
            store.take(arrivals)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert all(store.take(arrivals))
    assert len(list(path.parent.glob("*.damaged-*Z"))) == 1
    store.close()


def test_a_damaged_file_on_a_full_disk_is_replaced_when_there_is_space(path: Path) -> None:
    argv = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_values_that_cannot_be_cost_their_window(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([training(1)], T0, T0 + 60))
    store._db.execute("UPDATE sight SET steps = 'many', last_step_ns = 'late' WHERE time_s < ?", (T0 + 30,))
    store._db.execute("INSERT INTO node (name, gpu_models) VALUES ('n9', '{')")

    assert store.compute_windows(T0 + 600) == 2
    assert [item.start_s for item in store.throughputs()] == [T0 + 30]
    assert store.compute_windows(T0 + 600) == 0
    assert store._gpu_models_of("n9") == {}


def test_windows_of_another_length(open_store: Callable[..., ProfileStore]) -> None:
    store = open_store(StoreSettings(window_s=10.0, lag_s=1.0))
    store.take(Agents().watch([training(1)], T0, T0 + 30, every_s=2.0))
    assert store.compute_windows(T0 + 31) == 3
    assert rates(store) == [(1, 6.0, True)] * 3


def test_the_energy_of_a_job_is_that_of_all_its_runs_nodes_and_agents(tmp_path: Path) -> None:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:

        def used(agents: Agents, node: str, *joules: float, restart: int = 0, at_s: float = T0) -> None:
            for total in joules:
                report = Training(7, (node,), 3.0, start_s=T0 - 100, restart=restart).report(node, at_s)
                report.job.energy_joules = total
                store.take([agents.arrival(node, report)])

        assert store.energy_j(7, 0.0) is None
        agent, again = Agents(), Agents("b" * 32)
        used(agent, "n1", 0.0, 40.0, 100.0)
        used(agent, "n1", 90.0)  # a late report takes nothing back
        used(agent, "n2", 10.0)
        used(again, "n2", 0.0, 5.0)  # the agent was started again, and counts from 0
        used(again, "n1", 2.0, restart=1)  # the next run
        assert store.energy_j(7, 0.0) == 117.0
        # an earlier job with this number does not count, and old rows are deleted
        assert store.energy_j(7, T0 + 1) is None
        store.prune(T0 + 91 * DAY_S)
        assert store.energy_j(7, 0.0) is None
