"""Rewards of a cluster: the shares of their trainings that jobs have made."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from policies.api import Outcome
from policies.learned.dl2.learning.feedback.reward import RewardMeter
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster

ALONE: Mapping[int, int] = {0: 1}


def state(*jobs: Job, time_s: float = 1000.0) -> ClusterState:
    return cluster([Node(8)], jobs, time_s=time_s)


def running(progress: float = math.nan, service_s: float = 500.0, estimate_s: float = math.nan) -> Job:
    return Job(occupied=ALONE, training=(20.0, progress), service_s=service_s, estimate_s=estimate_s)


def outcome(job: int = 100, final_state: str = "COMPLETED", start_s: float = 500.0) -> Outcome:
    return Outcome(str(job), "ada", "train", float(job - 100), start_s, 2000.0, 1, 1, 700.0, final_state)


def seen(*states: ClusterState) -> RewardMeter:
    meter = RewardMeter()
    for each in states:
        meter.see(each)
    return meter


def test_the_reward_is_the_sum_of_the_shares_that_jobs_have_made() -> None:
    meter = seen(state(running(0.2), running(0.5)), state(running(0.3), running(0.9), time_s=1100.0))
    assert meter.total == pytest.approx(0.1 + 0.4)
    assert (meter.estimated, meter.unknown_s) == (0.0, -math.inf)


def test_what_a_job_made_before_it_could_be_seen_is_no_reward_and_what_it_made_since_is() -> None:
    before = state(running(0.2), Job(training=(20.0, 0.0)))
    meter = seen(before, state(running(0.2), running(0.1, service_s=90.0), time_s=1100.0))
    assert meter.total == pytest.approx(0.1)


def test_steps_that_are_made_again_after_a_stop_count_once() -> None:
    lost = [state(running(share), time_s=1000.0 + at) for at, share in enumerate((0.2, 0.5, 0.3, 0.5, 0.6))]
    assert seen(*lost).total == pytest.approx(0.4)


@pytest.mark.parametrize(("final_state", "added"), [("COMPLETED", 0.7), ("FAILED", 0.0), ("TIMEOUT", 0.0)])
def test_a_completed_job_has_made_its_whole_training_however_often_that_is_reported(
    final_state: str, added: float
) -> None:
    meter = seen(state(running(0.3)))
    for _ in range(3):
        meter.ended(outcome(final_state=final_state))
    assert meter.total == pytest.approx(added)


def test_a_job_that_ran_between_two_states_counts_if_it_began_after_the_first() -> None:
    meter = seen(state(running(0.3)))
    meter.ended(outcome(105, start_s=1001.0))
    assert meter.total == 1.0
    meter.ended(outcome(106, start_s=900.0))
    assert meter.total == 1.0


def test_without_steps_the_estimated_share_of_the_run_time_takes_their_place() -> None:
    meter = seen(
        state(running(service_s=100.0, estimate_s=1000.0)),
        state(running(service_s=400.0, estimate_s=1000.0), time_s=1300.0),
    )
    assert [meter.total, meter.estimated] == pytest.approx([0.3, 0.3])
    # when the first steps are reported, what was estimated stays, and what is measured counts from there on
    meter.see(state(running(0.1, service_s=500.0), time_s=1400.0))
    assert meter.total == pytest.approx(0.3)
    meter.see(state(running(0.5, service_s=600.0), time_s=1500.0))
    assert [meter.total, meter.estimated] == pytest.approx([0.4, 0.3])


def test_a_job_without_steps_and_estimate_makes_the_reward_unknown() -> None:
    meter = seen(state(running(0.3)), state(running(0.3), running(), time_s=1100.0))
    assert meter.unknown_s == 1100.0
    meter.see(state(running(0.4), time_s=1200.0))
    assert meter.unknown_s == 1100.0
