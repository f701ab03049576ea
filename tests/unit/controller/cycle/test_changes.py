"""A run that begins and ends between two snapshots is seen in the record of its end, as Slurm 22.05 leaves it; so is a requeue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.cycle.changes import changes, run_record, served_after
from controller.cycle.unreported import merged
from controller.slurm.birthmark import BIRTHMARK
from controller.slurm.model.job import NodeShare, Phase, SlurmJob
from controller.state.ledger import Ledger, PinRecord, Served
from tests.unit.controller.examples.build import NOW_S, job, running

WAITS = job("7")
END_S = 1_000_100.0
ON_N1 = NodeShare("n1", gpus=1, gpu_mask=1, cpus=1, memory_mib=1000)


@pytest.mark.parametrize(
    ("left", "runs"),
    [
        pytest.param({"start_time_s": END_S - 2, "allocated": (ON_N1,)}, True, id="two seconds"),
        pytest.param({"start_time_s": END_S, "allocated": (ON_N1,)}, True, id="less than a second"),
        pytest.param({"start_time_s": END_S - 2}, True, id="without the nodes"),
        pytest.param({"start_time_s": END_S}, False, id="cancelled in the queue"),
        pytest.param({"start_time_s": None}, False, id="never started"),
    ],
)
def test_a_run_between_two_snapshots(left: dict[str, Any], runs: bool) -> None:
    ended = job("7", phase=Phase.ENDED, state="CANCELLED", end_time_s=END_S, **left)
    found = changes({WAITS.key: WAITS}, {ended.key: ended}, lambda *_: False)
    assert (found.started, found.ended, found.unseen) == ((), (ended,), (ended,) if runs else ())


def test_a_run_that_was_seen_is_not_unseen() -> None:
    runs = job("7", phase=Phase.RUNNING, state="RUNNING", start_time_s=END_S - 9, allocated=(ON_N1,))
    ended = job("7", phase=Phase.ENDED, state="COMPLETED", start_time_s=END_S - 9, end_time_s=END_S)
    assert changes({WAITS.key: WAITS}, {runs.key: runs}, lambda *_: False).started == (runs,)
    found = changes({runs.key: runs}, {ended.key: ended}, lambda *_: False)
    assert (found.ended, found.unseen) == ((ended,), ())


def same(_job: SlurmJob, _former: object) -> bool:
    return True


RUNS = running("7", on={"n1": 4}, since=NOW_S - 100)
BACK_S = int(NOW_S) - 40
"""Time of the requeue, which is the new submit time."""


def ended(restarts: int = 1, **more: Any) -> SlurmJob:
    """The job after its requeue, ended 10 s before the second snapshot, whose nodes Slurm no longer shows."""
    facts = {"start_time_s": NOW_S - 30, "end_time_s": NOW_S - 10, "phase": Phase.ENDED, "state": "COMPLETED", **more}
    return job("7", submit=BACK_S, restarts=restarts, request=RUNS.request, **facts)


@pytest.mark.parametrize("before", [RUNS, job("7", phase=Phase.ENDED, start_time_s=NOW_S - 300, request=RUNS.request)])
def test_a_job_that_is_requeued_runs_and_ends_between_two_snapshots(before: SlurmJob) -> None:
    after = ended()
    found = changes({before.key: before}, {after.key: after}, same)
    assert (found.new, found.started, found.ended, found.unseen) == ((), (), (after,), (after,))
    assert (found.requeued, found.gone) == (((before, after),), (before.key,))


def test_a_job_that_is_cancelled_in_the_queue_after_its_requeue_has_no_unseen_run() -> None:
    after = ended(start_time_s=NOW_S - 10, state="CANCELLED")
    found = changes({RUNS.key: RUNS}, {after.key: after}, same)
    assert (found.ended, found.unseen, found.requeued) == ((after,), (), ((RUNS, after),))


@pytest.mark.parametrize(("born", "followed"), [("abc", True), ("", True), ("abd", False)])
def test_a_job_with_another_birthmark_is_another_job_whatever_it_requests(born: str, followed: bool) -> None:
    before = replace(RUNS, admin_comment=f"{BIRTHMARK}abc")
    after = job(
        "7", submit=BACK_S, restarts=1, request=RUNS.request, admin_comment=f"{BIRTHMARK}{born}" if born else ""
    )
    found = changes({before.key: before}, {after.key: after}, same)
    assert (found.requeued, found.new) == (((before, after),), ()) if followed else ((), (after,))


def test_a_job_that_is_cancelled_while_it_leaves_its_nodes_has_no_unseen_run() -> None:
    """Slurm counts the restart before the last task has ended, and the record has the start of the run before."""
    after = job("7", phase=Phase.ENDED, state="CANCELLED", restarts=1, start_time_s=RUNS.start_time_s, end_time_s=NOW_S)
    found = changes({RUNS.key: RUNS}, {after.key: after}, same)
    assert (found.ended, found.unseen, found.requeued) == ((after,), (), ((RUNS, after),))


def test_a_job_that_is_requeued_in_the_second_of_its_submission_has_started_again() -> None:
    """The key is the same, because Slurm's submit times are whole seconds."""
    after = running("7", on={"n2": 4}, since=NOW_S - 1, restarts=1)
    found = changes({RUNS.key: RUNS}, {after.key: after}, same)
    assert (found.started, found.requeued, found.gone) == ((after,), ((RUNS, after),), ())


def test_a_completing_job_whose_restart_is_counted_has_not_started() -> None:
    leaves = running("7", on={"n1": 4}, phase=Phase.COMPLETING, state="COMPLETING", restarts=1)
    found = changes({RUNS.key: RUNS}, {leaves.key: leaves}, same)
    assert (found.started, found.requeued) == ((), ((RUNS, leaves),))
    # and when it then runs again and ends unseen, the second step of the requeue shows the run
    after = ended()
    found = changes({leaves.key: leaves}, {after.key: after}, same)
    assert (found.ended, found.unseen, found.requeued) == ((after,), (after,), ((leaves, after),))


def test_a_job_that_is_submitted_runs_and_ends_between_two_snapshots() -> None:
    young = job("9", submit=int(NOW_S) - 5, phase=Phase.ENDED, start_time_s=NOW_S - 4, end_time_s=NOW_S - 2)
    old = job("8", submit=int(NOW_S) - 500, phase=Phase.ENDED, start_time_s=NOW_S - 400, end_time_s=NOW_S - 200)
    after = {young.key: young, old.key: old}
    found = changes({}, after, same, since_s=NOW_S - 5)
    assert (found.new, found.ended, found.unseen) == ((young, old), (young,), (young,))
    # at the first snapshot of a controller none of them is news
    assert changes({}, after, same).ended == ()


def test_a_requeued_run_counts_until_the_requeue() -> None:
    served = served_after(RUNS, ended(), Ledger(), NOW_S)
    assert served == Served(
        service_s=60.0, gpu_s=240.0, first_submit_s=RUNS.key.submit_time_s, last_start_s=RUNS.start_time_s
    )
    again = running("7", on={"n2": 4}, since=NOW_S - 20, restarts=1)  # under the same key
    assert served_after(RUNS, again, Ledger(), NOW_S).service_s == 80.0


def test_the_record_of_a_run_has_the_gpus_of_that_run() -> None:
    ledger = Ledger(served={ended().key: Served(60.0, 240.0, 1)})
    record = run_record(ended(), RUNS, ledger, NOW_S)
    assert (record.service_s, record.num_gpus) == (80.0, 4)  # the newest that are known
    assert record.gpu_s == 240.0 + 20.0 * 4
    resized = run_record(ended(allocated=(ON_N1,)), RUNS, ledger, NOW_S)
    assert (resized.num_gpus, resized.gpu_s) == (1, 240.0 + 20.0)
    # and of one that is cancelled in the queue that of its earlier runs
    waits = job("7", submit=BACK_S, restarts=1)
    cancelled = run_record(ended(start_time_s=NOW_S - 10, state="CANCELLED"), waits, ledger, NOW_S)
    assert (cancelled.service_s, cancelled.num_gpus, cancelled.gpu_s) == (60.0, 0, 240.0)
    # a run whose nodes were never seen has no GPU time that is known
    assert run_record(ended(), waits, Ledger(), NOW_S).gpu_s is None


def test_a_last_run_whose_nodes_were_never_seen_has_the_gpus_of_its_placement_and_does_not_cost_those_of_earlier_runs() -> (
    None
):
    served = {ended().key: Served(60.0, 240.0, 1)}
    waits = job("7", submit=BACK_S, restarts=1)
    # when it was placed by Headway, its GPUs are known
    pin = PinRecord(("n1", "n2"), (1, 2), restarts=1, pinned_at_s=NOW_S - 35, policy="fifo", reason="")
    placed = run_record(ended(), waits, Ledger(served=served, pins={ended().key: pin}), NOW_S)
    assert (placed.num_gpus, placed.num_nodes, placed.gpu_s) == (3, 2, 240.0 + 20.0 * 3)
    # but a placement of an earlier run, or of a run that did not begin, says nothing
    earlier = Ledger(served=served, pins={ended().key: replace(pin, restarts=0)})
    record = run_record(ended(), waits, earlier, NOW_S)
    assert (record.service_s, record.num_gpus, record.gpu_s) == (80.0, 0, 240.0)
    cancelled = ended(start_time_s=NOW_S - 10, state="CANCELLED")
    record = run_record(cancelled, waits, Ledger(served=served, pins={ended().key: pin}), NOW_S)
    assert (record.num_gpus, record.gpu_s) == (0, 240.0)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_that_counted_as_a_requeued_one_is_not_counted_again(steps: int) -> None:
    """A job that is cancelled while it leaves its nodes for the queue ends with the start of that run."""
    leaves = running("7", on={"n1": 4}, since=NOW_S - 100, phase=Phase.COMPLETING, state="COMPLETING", restarts=1)
    after = replace(leaves, phase=Phase.ENDED, state="CANCELLED", end_time_s=NOW_S, allocated=())
    last = leaves if steps == 2 else RUNS
    ledger = Ledger(served={RUNS.key: served_after(RUNS, leaves if steps == 2 else after, Ledger(), NOW_S)})
    record = run_record(after, last, ledger, NOW_S)
    assert (record.service_s, record.gpu_s) == (100.0, 400.0)


def test_changes_are_merged_in_their_order() -> None:
    waits, after = job("7", request=RUNS.request), ended()
    seen = changes({waits.key: waits}, {RUNS.key: RUNS}, same)
    then = changes({RUNS.key: RUNS}, {after.key: after, WAITS.key._replace(job_id="9"): job("9")}, same)
    found = merged(seen, then)
    assert (found.started, found.ended, found.requeued) == ((RUNS,), (after,), ((RUNS, after),))
    assert [one.key.job_id for one in found.new] == ["9"]
    # a job that had left the scope and is back is not gone
    assert merged(found, changes({}, {RUNS.key: RUNS}, same)).gone == ()
