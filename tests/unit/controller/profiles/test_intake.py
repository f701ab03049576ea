"""An agent that lies fills no disk, and displaces no other node's measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.profiles import intake, tables
from controller.profiles.intake import PERIOD_S, Intake
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore
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
    monkeypatch.setattr(intake, "MAX_RUNS", 40)
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


def test_an_agent_within_the_limits_loses_no_report() -> None:
    taken = Intake()
    assert all(taken.permits(f"n{number % 7}", {number % 50}, T0 + number / 100) for number in range(20_000))


def test_the_next_period_begins_anew_also_when_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_REPORTS", 3)
    taken = Intake()
    for at_s in (T0, T0 + PERIOD_S, T0 - 1000 * PERIOD_S):
        assert [taken.permits("n1", {1}, at_s) for _ in range(5)] == [True] * 3 + [False] * 2


def test_a_report_that_is_left_out_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_REPORTS", 3)
    agents = Agents()
    arrivals: list[Arrival] = [agents.arrival("n1", report) for report in job(1, "n1", T0)]
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        assert all(store.take(arrivals))
        assert store.highest("n1", agents.run_id) == len(arrivals)
        assert sizes(store)["sight"] == 3
