"""Which decision, or which release for Slurm to place, led to which run of a job."""

from __future__ import annotations

import pytest

from controller.admin.explain.cycle_view import CycleView
from controller.admin.report.runs import BY_SLURM, runs_of
from controller.admin.report.sources import Sources
from controller.slurm.accounting import AccountedRun
from controller.slurm.model.job import JobKey
from controller.state.given_to_slurm import GivenToSlurm
from controller.state.journal import DecisionEntry, PlacedEntry, RunRecord

WHY = "no policy could decide"
RUNS = (
    AccountedRun(1, 50.0, 100.0, 150.0, 50.0, "NODE_FAIL", 8, "n1", "ann", "train"),
    AccountedRun(1, 150.0, 200.0, None, 10.0, "RUNNING", 8, "n2", "ann", "train"),
)


def decided(time_s: float, reason: str) -> PlacedEntry:
    return PlacedEntry(DecisionEntry(time_s, 1, "d", "fifo", 0.1, ""), "n1:8", reason)


def reasons(placed: tuple[PlacedEntry, ...] = (), given: tuple[GivenToSlurm, ...] = ()) -> list[tuple[str, str]]:
    found = Sources("7", 300.0, None, None, 50.0, placed=placed, given=given, accounted=RUNS)
    return [(run.policy, run.reason) for run in runs_of(found, CycleView.__new__(CycleView))]


@pytest.mark.parametrize("time_s", [99.5, 100.4])
def test_a_release_or_a_decision_in_the_second_of_a_start_is_of_this_run_only(time_s: float) -> None:
    # Slurm's start is rounded down to a whole second
    assert reasons(given=(GivenToSlurm(time_s, WHY),)) == [(BY_SLURM, WHY), ("", "")]
    assert reasons(placed=(decided(time_s, "first"),)) == [("fifo", "first"), ("", "")]


def test_each_run_has_the_reason_of_its_own() -> None:
    given = (GivenToSlurm(60.0, "older"), GivenToSlurm(100.4, WHY))
    assert reasons((decided(199.0, "second"),), given) == [(BY_SLURM, WHY), ("fifo", "second")]


@pytest.mark.parametrize(("start_s", "runs"), [(None, 0), (200.0, 0), (150.0, 1)])
def test_a_job_that_was_cancelled_in_the_queue_has_no_run(start_s: float | None, runs: int) -> None:
    record = RunRecord(JobKey("7", 50), "ann", "train", start_s, 200.0, 0.0, 0, 0, "CANCELLED")
    found = Sources("7", 300.0, None, record, 50.0)
    assert len(runs_of(found, CycleView.__new__(CycleView))) == runs
