"""Facts about jobs go when Slurm no longer knows the jobs, and not when a snapshot has no news of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.base.apart import LEFT_OUT
from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.journal import Journal
from controller.state.ledger import Served
from tests.unit.controller.examples.build import NOW_S, job, running, snapshot

SETTINGS = ControllerSettings(partitions=("dl",))
ONE = job("1", raw_id=1)
OTHER = job("2", raw_id=2)
TASK = job("7_3", raw_id=9, array_job_id=7)
UNREAD = frozenset({1, 9})


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "journal.db")) as opened:
        yield opened


def keeper_of(journal: Journal) -> LedgerKeeper:
    return LedgerKeeper(journal, journal.load_ledger(), EventLog(RealClock()))


def know(journal: Journal, *jobs: SlurmJob) -> None:
    """Write down the own request and the usage of each job, as a controller before would have."""
    ledger = journal.load_ledger()
    for known in jobs:
        ledger.originals[known.key] = known.request
        ledger.served[known.key] = Served(5.0, 10.0, known.key.submit_time_s)
    journal.save_jobs(ledger, [known.key for known in jobs])


@pytest.mark.parametrize("seen_before", [True, False])
def test_facts_of_jobs_that_were_not_read_are_kept(journal: Journal, seen_before: bool) -> None:
    # Given facts on three jobs, which this controller has seen or which one before it has left
    know(journal, ONE, OTHER, TASK)
    keeper = keeper_of(journal)
    if seen_before:
        keeper.update(snapshot(ONE, OTHER, TASK), SETTINGS)
    # When a snapshot has no news of two of them, and the third is gone
    found = keeper.update(snapshot(unread=UNREAD), SETTINGS)
    # Then only the facts of the third go, and the two are as before
    assert journal.load_ledger().originals.keys() == {ONE.key, TASK.key}
    assert set(found.gone) == ({OTHER.key} if seen_before else set())
    assert keeper.jobs == ({ONE.key: ONE, TASK.key: TASK} if seen_before else {})
    # and when they are gone too, so are their facts
    found = keeper.update(snapshot(), SETTINGS)
    assert set(found.gone) == ({ONE.key, TASK.key} if seen_before else set())
    assert journal.load_ledger().originals == {}


def test_a_task_that_has_started_is_gone_whatever_other_records_were_not_read(journal: Journal) -> None:
    know(journal, TASK)
    keeper = keeper_of(journal)
    keeper.update(snapshot(TASK), SETTINGS)
    keeper.update(snapshot(replace(TASK, phase=TASK.phase.ENDED, state="COMPLETED", end_time_s=NOW_S)), SETTINGS)
    keeper.update(snapshot(unread=frozenset({1})), SETTINGS)
    assert (keeper.jobs, journal.load_ledger().originals) == ({}, {})


def test_a_job_that_was_requeued_before_it_was_read_keeps_its_facts(journal: Journal) -> None:
    know(journal, ONE)
    keeper = keeper_of(journal)
    keeper.update(snapshot(unread=UNREAD), SETTINGS)
    again = replace(ONE, key=ONE.key._replace(submit_time_s=ONE.key.submit_time_s + 50), restarts=1)
    keeper.update(snapshot(again), SETTINGS)
    ledger = journal.load_ledger()
    assert (ledger.originals.keys(), ledger.served[again.key].gpu_s) == ({again.key}, 10.0)


def test_a_job_that_ran_on_unread_ends_once(journal: Journal) -> None:
    keeper = keeper_of(journal)
    runs = running("1", on={"n1": 2}, raw_id=1)
    keeper.update(snapshot(runs), SETTINGS)
    assert keeper.update(snapshot(unread=UNREAD), SETTINGS).gone == ()
    found = keeper.update(
        snapshot(replace(runs, phase=runs.phase.ENDED, state="COMPLETED", end_time_s=NOW_S)), SETTINGS
    )
    assert [ended.key for ended in found.ended] == [runs.key]
    assert [run.num_gpus for run in keeper.unreported.runs] == [2]


def test_a_step_of_a_job_that_was_not_read_stays_open(journal: Journal) -> None:
    keeper = keeper_of(journal)
    journal.begin("release", {ONE.key: "", OTHER.key: ""}, NOW_S - 5)
    keeper.update(snapshot(replace(ONE, held=False), unread=UNREAD), SETTINGS)
    assert [step.key for step in journal.open_intents()] == [ONE.key]
    assert [step.outcome for step in journal.intents_of(OTHER.key)] == ["job is gone"]
    keeper.update(snapshot(ONE), SETTINGS)
    assert [step.outcome for step in journal.intents_of(ONE.key)] == ["found pending, held"]


def test_a_job_that_is_requeued_and_ends_between_two_snapshots_is_recorded(journal: Journal) -> None:
    keeper = keeper_of(journal)
    runs = running("1", on={"n1": 2}, raw_id=1)
    keeper.update(snapshot(runs), SETTINGS)
    again = runs.key._replace(submit_time_s=int(NOW_S) + 50)
    ended = replace(
        runs, key=again, phase=runs.phase.ENDED, state="FAILED", restarts=1, start_time_s=NOW_S + 60,
        end_time_s=NOW_S + 90, allocated=(),
    )  # fmt: skip
    found = keeper.update(snapshot(ended, time_s=NOW_S + 100), SETTINGS)
    assert (found.requeued, found.ended, found.unseen) == (((runs, ended),), (ended,), (ended,))
    (run,) = keeper.unreported.runs
    # 150 s until the requeue, and 30 s after it
    assert (run.key, run.service_s, run.num_gpus, run.state) == (again, 180.0, 2, "FAILED")
    record = journal.last_run("1")
    assert record == run
    assert journal.load_ledger().keys() == {again}
    # and another snapshot changes nothing more
    assert keeper.update(snapshot(ended, time_s=NOW_S + 110), SETTINGS).ended == ()
    assert len(keeper.unreported.runs) == 1


def test_jobs_of_a_partition_that_a_reload_adds_have_not_started_just_now(journal: Journal) -> None:
    events = EventLog(RealClock())
    keeper = LedgerKeeper(journal, journal.load_ledger(), events)
    keeper.update(snapshot(ONE), SETTINGS)
    old = replace(running("3", on={"n1": 2}, since=NOW_S - 1000), partition="lab")
    young = replace(running("4", on={"n2": 2}, since=NOW_S + 5), partition="lab")
    # given two jobs of another partition, one of which ran already when Slurm was read last
    keeper.update(snapshot(ONE, old), SETTINGS)
    # when the settings get this partition
    both = ControllerSettings(partitions=("dl", "lab"))
    found = keeper.update(snapshot(ONE, old, young, time_s=NOW_S + 10), both)
    # then that job has not started just now, and the other one has
    assert (set(found.started), found.present) == ({old, young}, (old,))
    assert [event.job_id for event in events.recent() if event.kind == "started"] == ["4"]
    # nor is it news in the next cycle, or when the partition goes and comes back
    assert keeper.update(snapshot(ONE, old, young, time_s=NOW_S + 20), both).started == ()
    keeper.update(snapshot(ONE, old, young, time_s=NOW_S + 30), SETTINGS)
    found = keeper.update(snapshot(ONE, old, young, time_s=NOW_S + 40), both)
    assert set(found.present) == set(found.started) == {old, young}


@pytest.mark.parametrize(
    "bad", [{"name": "caf\udce9"}, {"end_time_s": math.inf}, {"state": "\ud800"}, {"user": "ann\udcff"}]
)
def test_one_run_that_cannot_be_recorded_stops_no_others(journal: Journal, bad: dict[str, Any]) -> None:
    # Given two jobs that run
    keeper = keeper_of(journal)
    jobs = running("1", on={"n1": 1}), running("2", on={"n1": 1})
    keeper.update(snapshot(*jobs), SETTINGS)
    # When both end, one of them with a value that leads to an error
    ended = [replace(each, phase=Phase.ENDED, state="COMPLETED", allocated=(), end_time_s=NOW_S) for each in jobs]
    before = LEFT_OUT.counts().get("records of runs", 0)
    found = keeper.update(snapshot(replace(ended[0], **bad), ended[1]), SETTINGS)
    # Then the run of the other one is recorded, and both have ended
    assert [each.key.job_id for each in found.ended] == ["1", "2"]
    assert journal.last_run("1") is None
    assert journal.last_run("2") is not None
    assert LEFT_OUT.counts()["records of runs"] == before + 1
