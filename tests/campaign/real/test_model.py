"""The model of real stories finds each kind of broken promise in records that are made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaign.real.model import Disturbance, Expected, Hold, RealModel, RealPromise
from tests.campaign.real.records import Line, Row, by_job, parse_log, parse_releases, parse_sacct
from tests.campaign.real.story import STEPS_PER_S, USERS, Submission

STEPS = 2 * STEPS_PER_S
SPEC = Submission(label=0, user=USERS[0], steps=STEPS)


def run(start_s: int, end_s: int, state: str = "COMPLETED", **changes: Any) -> Row:
    values: dict[str, Any] = {
        "job_id": "7",
        "name": "story1-0",
        "state": state,
        "start_s": start_s,
        "end_s": end_s,
        "nodes": ("n1",),
        "gpus": 1,
    }
    return Row(**values | changes)


def log(first: int, last: int, start_s: float, number: int = 0, *, ends: bool = True) -> list[Line]:
    """Return the lines of a run from the step after `first` to `last`."""
    lines = [Line(start_s, number, "n1", "start", first)]
    lines += [Line(start_s + step / STEPS_PER_S, number, "n1", "step", step) for step in range(first + 1, last + 1)]
    return [*lines, Line(start_s + 3, number, "n1", "end", last)] if ends else lines


def model(spec: Submission = SPEC, submitted_s: float = 100.0) -> RealModel:
    made = RealModel()
    made.submitted("7", spec, submitted_s)
    return made


def broken(made: RealModel, rows: list[Row], lines: list[Line]) -> set[RealPromise]:
    made.check(by_job(rows), {"7": lines})
    return {violation.promise for violation in made.violations}


def saved(step: int, time_s: float) -> Line:
    return Line(time_s, 0, "n1", "saved", step)


def test_a_job_that_runs_as_its_user_asked_breaks_nothing() -> None:
    assert broken(model(), [run(101, 104)], log(0, STEPS, 101.2)) == set()


def test_a_second_run_needs_a_cause() -> None:
    rows = [run(101, 103, "REQUEUED"), run(105, 108)]
    lines = [*log(0, 4, 101.2, ends=False), *log(0, STEPS, 105.2, 1)]
    assert broken(model(), rows, lines) == {RealPromise.RUNS_ONCE}
    asked = model()
    asked.jobs["7"].requeues_s.append(102.5)
    assert broken(asked, rows, lines) == set()
    away = model()
    away.disturbances.append(Disturbance("n1", 102.0, 103.0))
    assert broken(away, rows, lines) == set()


def test_a_run_that_slurmd_refused_to_launch_explains_the_next_one_if_nothing_of_it_has_run() -> None:
    refused = model()
    refused.jobs["7"].launch_failed_s.append(104.3)
    lines = log(0, STEPS, 105.2, 1)
    assert broken(refused, [run(103, 103, "REQUEUED"), run(105, 108)], lines) == set()
    begun = [Line(103.4, 0, "n1", "start", 0), *lines]
    assert broken(refused, [run(103, 103, "REQUEUED"), run(105, 108)], begun) == {RealPromise.RUNS_ONCE}


@pytest.mark.parametrize(("requeue", "ran"), [(False, False), (True, False), (False, True)])
def test_slurm_may_cancel_a_job_that_it_could_not_launch_and_must_not_start_again(requeue: bool, ran: bool) -> None:
    away = model(Submission(label=0, user=USERS[0], steps=STEPS, requeue=requeue))
    away.disturbances.append(Disturbance("n1", 102.0, 103.0))
    lines = log(0, 2, 101.2, ends=False) if ran else []
    right = not requeue and not ran
    assert broken(away, [run(101, 104, "CANCELLED")], lines) == (set() if right else {RealPromise.RIGHT_END})


@pytest.mark.parametrize(("released_s", "excused"), [(100.0, True), (104.0, False), (None, False)])
def test_a_job_released_before_slurmctld_was_stopped_may_start_without_gpus(
    released_s: float | None, excused: bool
) -> None:
    restarted = model()
    restarted.disturbances.append(Disturbance(None, 100.5, 106.0))
    if released_s is not None:
        restarted.releases["7"] = [50.0, released_s, 130.0]
    found = broken(restarted, [run(105, 108, gpus=0)], log(0, STEPS, 105.2))
    assert found == (set() if excused else {RealPromise.ITS_RESOURCES})


def test_releases_are_read_from_the_log_of_slurmctld() -> None:
    lines = (
        "[2026-11-27T04:21:10.136] sched: _release_job_rec: release hold on JobId=292 by uid 64030",
        "[2026-11-27T04:21:12.363] sched: _release_job_rec: release hold on JobId=296_1(302) by uid 1",
        "[2026-11-27T04:21:12.301] sched: _hold_job_rec: hold on JobId=292 by uid 64030",
    )
    found = parse_releases("\n".join(lines))
    assert found.keys() == {"292", "296_1"}
    assert found["296_1"][0] - found["292"][0] == pytest.approx(2.227)


def test_a_preempted_job_goes_on_at_the_step_that_it_has_saved() -> None:
    rows = [run(101, 103, "REQUEUED"), run(105, 108)]
    before = [*log(0, 4, 101.2, ends=False), saved(4, 102.4)]
    for first, expected in ((4, set()), (0, {RealPromise.NO_STEP_LOST})):
        asked = model()
        asked.jobs["7"].preempted_s.append(101.8)
        assert broken(asked, rows, [*before, *log(first, STEPS, 105.2, 1)]) == expected
    assert broken(model(), rows, [*before, *log(4, STEPS, 105.2, 1)]) == {RealPromise.RUNS_ONCE}, "it was not asked"


def test_two_runs_at_once_are_found_in_either_record() -> None:
    asked = model()
    asked.jobs["7"].requeues_s.append(102.5)
    rows = [run(101, 106, "REQUEUED"), run(105, 108)]
    lines = [*log(0, 4, 101.2, ends=False), *log(0, STEPS, 105.2, 1)]
    assert broken(asked, rows, lines) == {RealPromise.NEVER_TWICE_AT_ONCE}
    asked = model()
    asked.jobs["7"].requeues_s.append(102.5)
    rows = [run(101, 103, "REQUEUED"), run(105, 108)]
    assert RealPromise.NEVER_TWICE_AT_ONCE in broken(asked, rows, [*lines, Line(106.0, 0, "n1", "step", 5)])


@pytest.mark.parametrize(
    ("own_s", "runs_after", "excused"),
    [(103.9, 1, False), (104.2, 1, True), (104.2, 2, False), (107.5, 1, False)],
    ids=["it had requeued itself before", "it requeues itself then", "once, and runs twice", "after it has started"],
)
def test_a_job_that_requeues_itself_after_its_cancellation_runs_once_more(
    own_s: float, runs_after: int, excused: bool
) -> None:
    made = model()
    job = made.jobs["7"]
    job.cancel_asked_s, job.cancelled_s, job.preempted_s, job.requeues_s = 104.0, 104.1, [103.0], [107.0]
    before = [*log(0, 4, 101.2, ends=False), saved(4, 103.8), Line(own_s, 0, "n1", "requeued", 4)]
    last = log(4, STEPS, 109.2, 2) if runs_after > 1 else log(4, STEPS, 106.2, 1)
    rows = [run(101, 104, "REQUEUED"), run(106, 107, "REQUEUED" if runs_after > 1 else "COMPLETED"), run(109, 110)]
    expected = set() if excused else {RealPromise.NOT_AFTER_CANCEL}
    assert broken(made, rows[: 1 + runs_after], [*before, *last]) == expected


@pytest.mark.parametrize(("requeued_s", "excused"), [(104.3, True), (101.0, False)], ids=["at once", "long before"])
def test_a_job_that_is_requeued_by_force_while_it_is_cancelled_runs_once_more(requeued_s: float, excused: bool) -> None:
    made = model()
    job = made.jobs["7"]
    job.cancel_asked_s, job.cancelled_s, job.requeues_s = 104.2, 104.4, [requeued_s]
    lines = [*log(0, 4, 101.2, ends=False), *log(0, STEPS, 106.2, 1)]
    found = broken(made, [run(101, 104, "REQUEUED"), run(106, 109)], lines)
    assert found == (set() if excused else {RealPromise.NOT_AFTER_CANCEL})


def test_no_start_after_a_cancellation_nor_during_a_hold() -> None:
    cancelled = model()
    cancelled.jobs["7"].cancelled_s = 101.0
    assert broken(cancelled, [run(105, 108)], log(0, STEPS, 105.2)) == {RealPromise.NOT_AFTER_CANCEL}
    held = model()
    held.jobs["7"].holds.append(Hold(101.0))
    assert broken(held, [run(105, 108)], log(0, STEPS, 105.2)) == {RealPromise.NOT_WHILE_HELD}
    released = model()
    released.jobs["7"].holds.append(Hold(101.0, until_s=104.0))
    assert broken(released, [run(105, 108)], log(0, STEPS, 105.2)) == set()


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (SPEC, {"gpus": 2}),
        (SPEC, {"nodes": ("n1", "n2")}),
        (Submission(label=0, user=USERS[0], steps=STEPS, feature="fast"), {"nodes": ("n2",)}),
    ],
)
def test_a_job_gets_what_it_asked_for(spec: Submission, changes: dict[str, Any]) -> None:
    assert broken(model(spec), [run(101, 104, **changes)], log(0, STEPS, 101.2)) == {RealPromise.ITS_RESOURCES}


def test_no_start_before_the_begin_time_nor_before_a_dependency() -> None:
    early = model(Submission(label=0, user=USERS[0], steps=STEPS, begin_in_s=6))
    assert broken(early, [run(101, 104)], log(0, STEPS, 101.2)) == {RealPromise.NOT_BEFORE_ITS_TIME}
    made = RealModel()
    made.submitted("6", Submission(label=1, user=USERS[0], steps=STEPS), 100.0)
    made.submitted("7", Submission(label=0, user=USERS[0], steps=STEPS, after=(("afterok", 1),)), 100.0)
    parent = run(101, 109, job_id="6")
    made.check(by_job([parent, run(103, 106)]), {"7": log(0, STEPS, 103.2), "6": log(0, STEPS, 101.2)})
    assert {violation.promise for violation in made.violations} == {RealPromise.NOT_BEFORE_ITS_TIME}


@pytest.mark.parametrize(
    ("cancelled_s", "kind", "ok"), [(101.0, "afterany", True), (109.0, "afterany", False), (101.0, "afterok", False)]
)
def test_a_cancelled_job_without_a_record_is_over(cancelled_s: float, kind: str, ok: bool) -> None:
    made = RealModel()
    made.submitted("6", Submission(label=1, user=USERS[0], steps=STEPS), 100.0)
    made.submitted("7", Submission(label=0, user=USERS[0], steps=STEPS, after=((kind, 1),)), 100.0)
    made.jobs["6"].cancelled_s = cancelled_s
    made.check(by_job([run(103, 106)]), {"7": log(0, STEPS, 103.2)})
    found = {violation.promise for violation in made.violations} - {RealPromise.NOT_HELD_FOR_EVER}
    assert found == (set() if ok else {RealPromise.NOT_BEFORE_ITS_TIME})


def test_a_job_ends_in_the_state_of_its_work() -> None:
    assert broken(model(), [run(101, 104, "FAILED")], log(0, STEPS, 101.2)) == {RealPromise.RIGHT_END}
    assert broken(model(), [run(101, 104)], log(0, 3, 101.2, ends=False)) == {RealPromise.RIGHT_END}
    killed = model()
    killed.jobs["7"].killed_s.append(102.0)
    assert broken(killed, [run(101, 104, "NODE_FAIL")], log(0, 3, 101.2, ends=False)) == set()


def test_a_job_that_is_killed_right_after_a_save_continues_from_it() -> None:
    rows = [run(101, 104, "REQUEUED"), run(106, 109)]
    made = model()
    made.jobs["7"].killed_s.append(103.9)
    assert broken(made, rows, [*log(0, 4, 101.2, ends=False), *log(4, STEPS, 106.2, 1)]) == set()
    far = model()
    far.jobs["7"].killed_s.append(103.9)
    assert broken(far, rows, [*log(0, 4, 101.2, ends=False), *log(3, STEPS, 106.2, 1)]) == {RealPromise.NO_STEP_LOST}


def test_the_record_of_an_array_says_nothing_of_tasks_that_have_their_own() -> None:
    text = "8_[0-1]|story1-1|CANCELLED|Unknown|109|None assigned|\n8_0|story1-1|COMPLETED|100|103|n1|gres/gpu=1\n"
    assert {job_id: [row.state for row in rows] for job_id, rows in by_job(parse_sacct(text)).items()} == {
        "8_0": ["COMPLETED"],
        "8_1": ["CANCELLED"],
    }


def test_records_are_read_from_what_sacct_and_jobs_write() -> None:
    text = (
        "7|story1-0|REQUEUED|100|103|n[1-2]|billing=2,cpu=2,gres/gpu=4,node=2\n"
        "7|story1-0|CANCELLED by 1|Unknown|109|None assigned|\n"
        "8_[1-2%1]|story1-1|CANCELLED|Unknown|109|None assigned|\n"
    )
    first, second, *tasks = parse_sacct(text)
    assert [row.job_id for row in tasks] == ["8_1", "8_2"]
    assert (first.nodes, first.gpus, first.ran, first.ended) == (("n1", "n2"), 4, True, False)
    assert (second.state, second.ran, second.ended, second.end_s) == ("CANCELLED", False, True, 109)
    (line,) = parse_log("100.5 0 n1 start 0\n101.0 0 n1 st")
    assert (line.what, line.step, line.run) == ("start", 0, 0)


def test_a_resumed_job_is_held_no_more() -> None:
    """Where it is not known whether Slurm has resumed it, the hold may count."""
    for certain in (True, False):
        job = Expected("7", SPEC, 0.0, holds=[Hold(10.0)])
        job.resumed(20.0, certain=certain)
        assert (job.held, job.holds[0].until_s) == (not certain, 20.0)
