"""An agent that lies fills no disk, and displaces no other node's measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.profiles import intake, tables
from controller.profiles.intake import PERIOD_S, Intake
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore, ProfileStoreError
from controller.profiles.windows import RunKey
from protos.headway.v1 import agent_pb2
from tests.unit.controller.examples.reports import Agents, Training

T0 = 50_000 * PERIOD_S
"""A period begins here."""
STEP = {"step_s": 0.33, "compute_s": 0.01, "comm_exposed_s": 0.32, "comm_hidden_s": 0.0}
TABLES = ("receipt", "node", "run", "sight", "present", "impaired", "energy", "due", "observation", "profile")


def job(job_id: int, node: str, at_s: float) -> Iterator[agent_pb2.AgentReport]:
    """Yield everything that an agent can report about a job within one window."""
    training = Training(job_id, (node,), 6.0, start_s=at_s - 100)
    for number in range(7):
        report = training.report(node, at_s + 5 * number)
        report.job.energy_joules = 1e6
        report.job.impaired.add(index=0, causes=["power"])
        yield report
    yield training.profile(at_s + 35, STEP, {"all_reduce": 4e6})


def sizes(store: ProfileStore) -> dict[str, int]:
    return {table: store._db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in TABLES}


def test_an_agent_that_invents_jobs_for_months_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_JOBS", 40)
    monkeypatch.setattr(tables, "MAX_OF_NODE", 500)
    monkeypatch.setattr(tables, "MAX_OBSERVATIONS", 400)
    found, periods, honest = [], 30, Agents()
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        for period in range(periods):
            at_s = T0 + period * PERIOD_S
            # Given an agent that comes each time as another run of itself and invents 340 jobs, and one that has one job
            liar, invented = Agents(f"{period:032x}"), range(period * 340, (period + 1) * 340)
            arrivals = [liar.arrival("n1", report) for job_id in invented for report in job(job_id, "n1", at_s)]
            arrivals += [honest.arrival("n2", report) for report in job(1_000_000 + period, "n2", at_s)]
            store.take(arrivals)
            store.compute_windows(at_s + PERIOD_S / 2)
            store.prune(at_s + PERIOD_S - 1)
            found.append(sizes(store))
        others = store._db.execute("SELECT COUNT(*) FROM energy WHERE node = 'n2'").fetchone()[0]

    # Then no table grows in the second half, and the other node's rows are all there
    grown = {table: (found[periods // 2][table], found[-1][table]) for table in TABLES}
    assert {table: rows for table, rows in grown.items() if rows[1] > rows[0] * 1.1 + 60} == {}
    assert others == periods


@pytest.mark.parametrize("interval_s", [0.5, 5.0])
def test_an_agent_within_the_limits_loses_no_report(interval_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a full outbox after an absence, and then 30 jobs that report at every interval."""
    monkeypatch.setattr(intake, "JOBS_OF_A_NODE", 30)
    monkeypatch.setattr(intake, "FROM_OUTBOX", 3000)
    taken = Intake(interval_s)
    assert all(taken.permits("n1", {(number % 30, 0)}, T0) for number in range(3000))
    reports = int(PERIOD_S / interval_s) * 30
    assert all(taken.permits("n1", {(number % 30, 0)}, T0 + number * PERIOD_S / reports) for number in range(reports))
    assert not taken.permits("n1", {(1, 0)}, T0 + PERIOD_S - 1)


def limited(monkeypatch: pytest.MonkeyPatch, reports: int) -> None:
    """Let 3 jobs be the most, and so many reports."""
    monkeypatch.setattr(intake, "JOBS_OF_A_NODE", 0)
    monkeypatch.setattr(intake, "FROM_OUTBOX", reports)
    monkeypatch.setattr(intake, "MAX_JOBS", 3)


def test_the_next_period_begins_anew_also_when_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 3)
    taken = Intake()
    for at_s in (T0, T0 + PERIOD_S, T0 - 1000 * PERIOD_S):
        assert [taken.permits("n1", {(1, 0)}, at_s) for _ in range(5)] == [True] * 3 + [False] * 2


def test_jobs_of_slurm_are_taken_after_a_user_has_invented_as_many_as_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, 1000)
    taken = Intake()
    taken.note_present(T0, {"n1": [70, 71]}, [])
    assert [taken.permits("n1", {(job_id, 0)}, T0) for job_id in range(5)] == [True] * 3 + [False] * 2
    # Then jobs that Slurm shows there are heard, one also after its end, and one that was new before Slurm showed it counts no more
    assert taken.permits("n1", {(70, 0)}, T0) and taken.permits("n1", {(71, 0)}, T0)
    taken.note_present(T0, {"n1": [0, 72]}, [])
    assert all(taken.permits("n1", {(job_id, 0)}, T0) for job_id in (70, 71, 72, 0, 3))
    assert not taken.permits("n1", {(4, 0)}, T0)
    # And a job that Slurm shows on another node gets no place on this one
    taken.note_present(T0, {"n2": [5]}, [])
    assert not taken.permits("n1", {(5, 0)}, T0)


def test_a_node_with_many_short_jobs_is_heard() -> None:
    taken = Intake()
    for number in range(1500):
        at_s = T0 + number * 0.39
        assert taken.permits("n1", {(number, 0)}, at_s)
        taken.note_present(at_s, {"n1": [number]}, [RunKey(number, 0)])
        assert taken.permits("n1", {(number, 0)}, at_s)


def test_where_no_agent_reports_jobs_of_earlier_periods_are_forgotten() -> None:
    taken = Intake()
    for number in range(1000):
        taken.note_present(T0 + number * PERIOD_S / 10, {"n1": range(number * 10, number * 10 + 10)}, [])
    assert sum(map(len, (*taken._present.values(), *taken._before.values()))) <= 200


def test_a_job_that_claims_many_restarts_uses_up_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 1000)
    monkeypatch.setattr(intake, "MAX_RESTARTS", 4)
    taken = Intake()
    taken.note_present(T0, {"n1": [1, 2]}, [RunKey(1, 90), RunKey(2, 0)])
    assert [taken.permits("n1", {(1, restart)}, T0) for restart in range(6)] == [True] * 4 + [False] * 2
    assert taken.permits("n1", {(1, 90)}, T0)  # the restart that Slurm shows
    assert taken.permits("n1", {(2, 0)}, T0) and taken.permits("n1", {(3, 0)}, T0)


class FullDisk:
    """A file of profiles that cannot grow until there is room again."""

    def __init__(self, store: ProfileStore) -> None:
        self._db = store._db
        (used,) = self._db.execute("PRAGMA page_count").fetchone()
        self._db.execute(f"PRAGMA max_page_count = {used}")

    def make_room(self) -> None:
        self._db.execute("PRAGMA max_page_count = 1000000")


def test_reports_that_wait_for_a_full_disk_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 200)
    agents, training = Agents(), Training(1, ("n1",), 6.0, start_s=T0 - 100)
    arrivals = [agents.arrival("n1", training.report("n1", T0 + number)) for number in range(200)]
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        disk = FullDisk(store)
        # When storing fails many times, as storage tries again, and then the disk has room
        for _ in range(5):
            with pytest.raises(ProfileStoreError):
                store.take(arrivals)
        disk.make_room()
        # Then all reports are stored, and none was counted as left out
        assert all(store.take(arrivals))
        assert (sizes(store)["sight"], store.left_out()) == (200, {})


def test_gpu_models_are_stored_after_a_write_that_failed(tmp_path: Path) -> None:
    agents = Agents()
    telemetry = agent_pb2.NodeTelemetry(gpus_read=True, gpus=[agent_pb2.GpuTelemetry(index=0, name="H200")])
    training = Training(1, ("n1",), 6.0, start_s=T0 - 100)
    arrivals = [agents.arrival("n1", agent_pb2.AgentReport(time_s=T0, telemetry=telemetry))]
    arrivals += [agents.arrival("n1", training.report("n1", T0 + number)) for number in range(200)]
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        disk = FullDisk(store)
        with pytest.raises(ProfileStoreError):
            store.take(arrivals)
        disk.make_room()
        store.take(arrivals)
        assert store._db.execute("SELECT gpu_models FROM node").fetchall() == [('{"0": "H200"}',)]


def test_a_report_that_is_left_out_is_acknowledged_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 3)
    agents = Agents()
    arrivals: list[Arrival] = [agents.arrival("n1", report) for report in job(1, "n1", T0)]
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        assert all(store.take(arrivals))
        assert store.highest("n1", agents.run_id) == len(arrivals)
        assert sizes(store)["sight"] == 3
        assert (store.left_out(), store.left_out()) == ({"n1": len(arrivals) - 3}, {})
