"""Why Headway gave a job to Slurm to place, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.slurm.client import Failure, FailureReason
from controller.slurm.model.job import JobKey
from controller.state.given_to_slurm import GivenToSlurm
from controller.state.journal import Journal, RunRecord
from controller.state.ledger import Ledger

KEY = JobKey("7", 1000)
WHY = "asks for nodes by --constraint=[a|b]"
OLD_S = 10_000.0
"""Age from which on steps are dropped."""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "state" / "journal.sqlite")) as journal:
        yield journal


def released(journal: Journal, why: str, time_s: float = 2000.0, problem: str = "", key: JobKey = KEY) -> None:
    numbers = journal.begin("release", {key: why}, time_s)
    journal.finish(numbers, [key], {key: Failure(problem)} if problem else {}, time_s + 1)


def test_the_last_reason_is_that_of_the_last_release_for_slurm(journal: Journal) -> None:
    assert journal.given_to_slurm.last(KEY) is None
    released(journal, WHY)
    released(journal, "no policy could decide", 3000.0)
    # one that Slurm refused gave nothing to it
    released(journal, "its user released it", 5000.0, "no such job")
    released(journal, "", 6000.0, "no such job")

    assert journal.given_to_slurm.last(KEY) == GivenToSlurm(3000.0, "no policy could decide")
    assert journal.given_to_slurm.last(JobKey("7", 1001)) is None


@pytest.mark.parametrize("time_s", [4000.0, 1500.0])
def test_no_reason_is_left_once_headway_has_placed_the_job(journal: Journal, time_s: float) -> None:
    # given a release by Headway after that for Slurm, where the clock may have been set back
    journal.save_jobs(Ledger(yielded={KEY: 0}), [KEY])
    released(journal, WHY)
    released(journal, "", time_s)
    assert journal.given_to_slurm.last(KEY) is None
    # when the later release is too old to be kept
    journal.prune(0, 1800.0)
    journal.prune(0, OLD_S)
    # then the earlier one is not valid again
    assert journal.given_to_slurm.last(KEY) is None
    assert journal.given_to_slurm.of_id("7", 0.0) == []


def test_a_release_without_an_answer_is_open_until_a_snapshot_shows_the_job(journal: Journal) -> None:
    numbers = journal.begin("release", {KEY: WHY}, 2000.0)
    journal.finish(numbers, [KEY], {KEY: Failure("no answer", FailureReason.UNAVAILABLE)}, 2001.0)
    assert [step.number for step in journal.open_intents()] == numbers
    assert journal.given_to_slurm.last(KEY) == GivenToSlurm(2000.0, WHY)
    journal.settle({numbers[0]: "found pending, held"}, 2002.0)
    assert journal.given_to_slurm.last(KEY) is None


def test_all_submissions_of_an_id_are_found_oldest_first(journal: Journal) -> None:
    released(journal, "too old", 1500.0)
    released(journal, WHY)
    released(journal, "no policy could decide", 3000.0, key=JobKey("7", 2500))

    assert [given.why for given in journal.given_to_slurm.of_id("7", 1900.0)] == [WHY, "no policy could decide"]


def test_the_reason_stays_while_slurm_knows_the_job_and_while_the_record_of_its_end_does(journal: Journal) -> None:
    # given a job that has run for longer than steps are kept
    ledger = Ledger(yielded={KEY: 0})
    journal.save_jobs(ledger, [KEY])
    released(journal, WHY)
    journal.finish(journal.begin("mark", {KEY: "headway:pinned"}, 2000.0), [KEY], {}, 2001.0)
    journal.prune(10, OLD_S)
    assert [step.detail for step in journal.intents_of(KEY)] == [WHY]
    # when it ends, and Slurm forgets it
    journal.record_runs([RunRecord(KEY, "ann", "bert", 2001.0, OLD_S + 5, OLD_S, 8, 1, "COMPLETED")])
    journal.save_jobs(Ledger(), [KEY])
    journal.prune(10, OLD_S)
    assert journal.given_to_slurm.last(KEY) == GivenToSlurm(2000.0, WHY)
    # then the reason goes with its record
    journal.prune(10, OLD_S + 6)
    assert journal.given_to_slurm.last(KEY) is None


@pytest.mark.parametrize("outcome", ["refused", "done"])
def test_many_releases_of_one_job_are_pruned_in_steps_that_grow_with_their_number(
    journal: Journal, outcome: str
) -> None:
    def steps_to_prune(rows: int) -> int:
        with journal._file.writing() as db:
            db.execute("DELETE FROM intent")
            db.executemany(
                "INSERT INTO intent (time_s, verb, job_id, submit_time_s, detail, done_time_s, outcome)"
                " VALUES (2000.0, 'release', '7', 1000, ?, 2001.0, ?)",
                [(WHY, outcome)] * rows,
            )
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        journal._db.set_progress_handler(count, 100)
        journal.prune(0, 0.0)
        journal._db.set_progress_handler(None, 0)
        return counted

    few = steps_to_prune(5_000)
    assert steps_to_prune(20_000) < 6 * few
    left = journal._file.read("SELECT COUNT(*) FROM intent")
    assert left == [(20_000 if outcome == "refused" else 1,)]


def test_a_reason_among_thousands_of_refused_releases_is_found_by_an_index(journal: Journal) -> None:
    statements: list[str] = []
    journal._db.set_trace_callback(statements.append)
    journal.given_to_slurm.last(KEY)
    journal.given_to_slurm.of_id("7", 0.0)
    journal._db.set_trace_callback(None)
    for statement in statements:
        plan = [row[3] for row in journal._file.read(f"EXPLAIN QUERY PLAN {statement}")]
        assert sum("USING INDEX intent_release (job_id=?" in step for step in plan) == 2, plan
    assert len(statements) == 2
