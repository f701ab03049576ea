"""Roles of jobs: those that Headway schedules, and how it treats each."""

import math

import pytest

from controller.observe.role import LAST_RETRY_S, SETTLING, Obstacle, Role, in_scope, standing
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.state.ledger import Ledger, PinRecord, Refusal
from tests.unit.controller.examples.build import NOW_S, job, request, running

DL = frozenset({"dl"})


@pytest.mark.parametrize(
    ("change", "inside"),
    [
        ({}, True),
        ({"request": request(gpus_per_job=4)}, True),
        ({"request": request(gpus_per_task=1)}, True),
        ({"request": request()}, False),
        ({"batch": False}, False),
        ({"het_job_id": 7}, False),
        ({"partition": "cpu"}, False),
        ({"partition": "dl,cpu"}, False),
    ],
)
def test_only_batch_jobs_with_gpus_in_managed_partitions_are_ours(change, inside):
    assert in_scope(job(**change), DL) is inside


@pytest.mark.parametrize(
    ("change", "role"),
    [
        ({}, Role.WAITING),
        ({"admin_comment": f"site:7 {HOLD_MARK}"}, Role.WAITING),
        ({"admin_comment": USER_HOLD_MARK}, Role.INELIGIBLE),
        ({"admin_comment": f"{HOLD_MARK} {USER_HOLD_MARK}"}, Role.INELIGIBLE),
        ({"admin_comment": ""}, Role.INELIGIBLE),
        ({"eligible_time_s": NOW_S + 60}, Role.INELIGIBLE),
        ({"eligible_time_s": NOW_S - 60}, Role.WAITING),
        ({"eligible_time_s": NOW_S + 60, "restarts": 1, "submit": int(NOW_S) - 61}, Role.WAITING),
        ({"latest_start_s": NOW_S + 60}, Role.WAITING),
        ({"latest_start_s": NOW_S - 1}, Role.WAITING),
        ({"latest_start_s": NOW_S - 3}, Role.STRAY),
        ({"latest_start_s": NOW_S - 3, "admin_comment": USER_HOLD_MARK}, Role.INELIGIBLE),
        ({"latest_start_s": NOW_S - 3, "admin_comment": "", "reason": "JobHeldAdmin"}, Role.INELIGIBLE),
        ({"held": False, "reason": "Priority"}, Role.ADOPT),
        ({"phase": Phase.ENDED, "state": "COMPLETED"}, Role.ENDED),
        ({"batch": False, "admin_comment": ""}, Role.FOREIGN),
        ({"batch": False}, Role.STRAY),
        ({"partition": "cpu"}, Role.STRAY),
        ({"partition": "cpu", "admin_comment": f"{HOLD_MARK} {USER_HOLD_MARK}"}, Role.FOREIGN),
        ({"partition": "cpu", "held": False}, Role.FOREIGN),
    ],
)
def test_role_of_a_job_that_holds_no_nodes(change, role):
    assert standing(job(**change), DL, Ledger(), NOW_S).role is role


@pytest.mark.parametrize(("is_given", "role"), [(False, Role.ADOPT), (True, Role.INELIGIBLE)])
def test_a_job_that_slurm_refuses_with_our_request_after_its_user_has_released_it_is_taken_back(is_given, role):
    refused = job(reason="BadConstraints", admin_comment=USER_HOLD_MARK)
    ledger = Ledger()
    ledger.originals[refused.key] = refused.request
    if is_given:
        ledger.yielded[refused.key] = 0

    assert standing(refused, DL, ledger, NOW_S).role is role
    assert standing(refused, DL, Ledger(), NOW_S).role is Role.INELIGIBLE, "it has its own request"


def test_a_job_that_slurm_is_to_end_at_its_deadline_is_not_held_again():
    late = job(held=False, reason="Priority", latest_start_s=NOW_S - 3, admin_comment="")
    ledger = Ledger()
    ledger.yielded[late.key] = 0

    assert standing(late, DL, ledger, NOW_S).role is Role.YIELDED


def test_a_released_job_with_a_pin_of_this_run_is_starting():
    released = job(held=False, reason="None", restarts=1)
    ledger = Ledger()
    ledger.pins[released.key] = PinRecord(("n1",), (1,), restarts=1, pinned_at_s=NOW_S, policy="fifo", reason="")
    assert standing(released, DL, ledger, NOW_S).role is Role.STARTING
    # when Slurm has requeued it, the old pin says nothing any more
    again = job(held=False, reason="None", restarts=2)
    assert standing(again, DL, ledger, NOW_S).role is Role.ADOPT


def test_a_job_that_slurm_starts_again_at_once_is_left_alone():
    again = job(held=False, reason="Priority", admin_comment="", restarts=1, expedited=True)
    assert standing(again, DL, Ledger(), NOW_S).role is Role.YIELDED
    # except that the nodes of its last run, which Headway chose, are taken off
    ours = Ledger()
    ours.originals[again.key] = request(gpus_per_node=1)
    assert standing(again, DL, ours, NOW_S).role is Role.STRAY
    # its first run is Headway's to place, and so is one after a hold
    first = job(held=False, reason="Priority", admin_comment="", expedited=True)
    assert standing(first, DL, Ledger(), NOW_S).role is Role.ADOPT
    assert standing(job(restarts=1, expedited=True), DL, ours, NOW_S).role is Role.WAITING
    ours.pins[again.key] = PinRecord(("n1",), (1,), restarts=1, pinned_at_s=NOW_S, policy="fifo", reason="")
    assert standing(again, DL, ours, NOW_S).role is Role.STARTING


def test_no_job_is_placed_again_in_the_second_in_which_slurm_ended_its_run():
    requeued = job(submit=int(NOW_S), restarts=1)
    assert standing(requeued, DL, Ledger(), int(NOW_S) + 0.99) is SETTLING
    assert standing(requeued, DL, Ledger(), int(NOW_S) + 1.0).role is Role.WAITING
    # nor does it keep anybody whose requeue seems to lie far ahead, since the clock was set back
    assert standing(requeued, DL, Ledger(), NOW_S - 3600).role is Role.WAITING


def test_a_refused_job_waits_until_its_next_try():
    refused = job()
    ledger = Ledger()
    ledger.refusals[refused.key] = Refusal("AssocGrpGRES", NOW_S, NOW_S + 10, 1)
    assert standing(refused, DL, ledger, NOW_S).role is Role.INELIGIBLE
    assert "AssocGrpGRES" in standing(refused, DL, ledger, NOW_S).why
    assert standing(refused, DL, ledger, NOW_S + 10).role is Role.WAITING


def test_a_refusal_made_after_the_snapshot_was_read_keeps_its_longest_pause():
    refused = job()
    ledger = Ledger()
    ledger.refusals[refused.key] = Refusal("AssocGrpGRES", NOW_S + 2.7, NOW_S + 2.7 + LAST_RETRY_S, 9)
    assert standing(refused, DL, ledger, NOW_S).role is Role.INELIGIBLE
    # when the clock was set back by an hour, then the refusal keeps no job
    assert standing(refused, DL, ledger, NOW_S - 3600).role is Role.WAITING
    # nor does a pause that is none of ours
    ledger.refusals[refused.key] = Refusal("AssocGrpGRES", NOW_S, NOW_S + 2 * LAST_RETRY_S, 9)
    assert standing(refused, DL, ledger, NOW_S).role is Role.WAITING


def test_a_job_given_to_slurm_is_left_to_it_for_this_run():
    given = job(held=False, reason="Resources")
    ledger = Ledger()
    ledger.yielded[given.key] = 0
    assert standing(given, DL, ledger, NOW_S).role is Role.YIELDED


def test_a_running_job_is_running_with_any_marks():
    assert standing(running(on={"n1": 2}), DL, Ledger(), NOW_S).role is Role.RUNNING


@pytest.mark.parametrize(
    ("begin_in_s", "delay_s", "role"),
    [
        (7200, 120.0, Role.INELIGIBLE),
        (200, 120.0, Role.INELIGIBLE),
        (121, 120.0, Role.WAITING),
        (150, 120.0, Role.WAITING),  # Slurm may have set the two times in separate steps
        (200, 300.0, Role.WAITING),
        (7200, math.inf, Role.WAITING),  # the delay is not known
    ],
)
def test_a_begin_time_after_slurms_own_delay_of_a_requeued_job_is_its_users(begin_in_s, delay_s, role):
    requeued = job(restarts=1, submit=int(NOW_S) - 5, eligible_time_s=NOW_S - 5 + begin_in_s)
    found = standing(requeued, DL, Ledger(), NOW_S, delay_s)
    assert found.role is role
    if role is Role.INELIGIBLE:
        assert found.obstacle is Obstacle.BEGIN_TIME
        assert standing(requeued, DL, Ledger(), NOW_S + begin_in_s, delay_s).role is Role.WAITING
