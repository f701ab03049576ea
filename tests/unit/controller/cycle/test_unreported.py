"""Changes wait for a good cycle: what one snapshot shows is reported whole, and only what fails to be reported is bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from controller.cycle import unreported
from controller.cycle.changes import JobChanges
from controller.cycle.unreported import Unreported
from controller.slurm.model.job import SlurmJob
from controller.state.journal import RunRecord
from tests.unit.controller.examples.build import NOW_S, job, running

JOBS = [replace(running(str(number), on={"n1": 1}), restarts=1) for number in range(1, 6)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreported, "_MOST", 2)


def changes_of(jobs: list[SlurmJob]) -> JobChanges:
    some = tuple(jobs)
    was = tuple((job(one.key.job_id), one) for one in some)
    gone = tuple(one.key for one in some)
    return JobChanges(started=some, present=some, ended=some, unseen=some, requeued=was, gone=gone)


def runs_of(jobs: list[SlurmJob]) -> list[RunRecord]:
    return [RunRecord(one.key, one.user, one.name, None, NOW_S, 0.0, 1, 1, "CANCELLED") for one in jobs]


def test_one_snapshot_is_reported_whole_however_much_it_shows() -> None:
    waits = Unreported()
    with capture_logs() as logs:
        waits.add(changes_of(JOBS), runs_of(JOBS))
    assert (waits.changes, list(waits.runs)) == (changes_of(JOBS), runs_of(JOBS))
    assert logs == []


def test_of_earlier_snapshots_the_newest_changes_are_left_and_a_cut_is_logged_once() -> None:
    waits = Unreported()
    with capture_logs() as logs:
        for number in range(4):
            waits.add(changes_of(JOBS[number:]), runs_of(JOBS[number:]))
    left = [*JOBS[3:], *JOBS[3:]]
    assert (waits.changes, list(waits.runs)) == (changes_of(left), runs_of(left))
    assert [line["event"] for line in logs] == ["changes_cut"]
    # and after a good cycle, the next cut is logged again
    waits.clear()
    with capture_logs() as logs:
        waits.add(changes_of(JOBS), runs_of(JOBS))
        waits.add(changes_of([]), [])
    assert [line["event"] for line in logs] == ["changes_cut"]
    assert waits.changes == changes_of(JOBS[3:])
