"""Dally: waiting for near GPUs, the jobs that it stops, and that every decision is valid."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings

from policies.api import Decision
from policies.heuristics.baselines.dally import Dally
from policies.model import ClusterState, Placement
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, state_of
from tests.unit.policies.states.valid import check

HALF = [(Job(gpus=4, occupied={node: 4}, preemptible=False), QUIET) for node in range(2)]
"""Leave four GPUs on each of two nodes. The next job was submitted at 2 s, and it is 1,000 s."""

ONE = [Node(), Node(available=False)]
"""One node that is up; a second one, at a distance, is not."""


def decide(state: ClusterState, **options: float) -> Decision:
    return Dally(**options).decide(state)  # type: ignore[arg-type] # options by name


def test_a_sensitive_job_waits_for_one_node_then_for_one_rack() -> None:
    state = state_of([Node()] * 2, [*HALF, (Job(gpus=8), LOUD)], rack=(0, 1))
    waits = decide(state, machine_s=2000.0)
    assert 2 not in waits.allocation
    assert waits.reasons[2] == "waits for GPUs on one node; takes farther ones in 1002 s"
    waits = decide(state, machine_s=500.0, rack_s=1000.0)
    assert waits.reasons[2] == "waits for GPUs in one rack; takes farther ones in 502 s"
    starts = decide(state, machine_s=500.0, rack_s=100.0)
    assert starts.allocation[2] == Placement((0, 1), (4, 4))
    assert starts.reasons[2] == "anywhere: 8 GPUs on 2 nodes, n0 to n1"
    one_rack = state_of([Node()] * 2, [*HALF, (Job(gpus=8), LOUD)])
    assert decide(one_rack, machine_s=500.0, rack_s=1000.0).reasons[2] == "in one rack: 8 GPUs on 2 nodes, n0 to n1"


def test_a_job_that_loses_nothing_by_distance_does_not_wait() -> None:
    state = state_of([Node()] * 2, [*HALF, (Job(gpus=8), QUIET)], rack=(0, 1))
    assert decide(state, machine_s=2000.0).allocation[2] == Placement((0, 1), (4, 4))


def test_within_a_rack_it_takes_the_fullest_rack_that_holds_it() -> None:
    busy = [(Job(gpus=4, occupied={node: 4}, preemptible=False), QUIET) for node in range(3)]
    state = state_of([Node()] * 4, [*busy, (Job(gpus=12), LOUD)], rack=(0, 0, 1, 1))
    # 8 GPUs are free in the first rack, 12 in the second; the job never fits on one node
    assert decide(state).allocation[3] == Placement((2, 3), (4, 8))


def test_the_jobs_that_lose_most_by_distance_come_first_and_stop_others() -> None:
    runs = Job(gpus=8, occupied={0: 8})
    decision = decide(state_of([Node()] * 2, [(runs, QUIET), (Job(gpus=16), QUIET), (Job(gpus=8), LOUD)]))
    assert decision.queue == (2, 1)
    assert decision.allocation == {0: Placement((0,), (8,)), 2: Placement((1,), (8,))}  # a free node comes first
    stops = decide(state_of(ONE, [(runs, QUIET), (Job(gpus=8), LOUD)]))
    assert set(stops.allocation) == {1} and stops.reasons[0].startswith("stopped")
    stays = decide(state_of(ONE, [(runs, LOUD), (Job(gpus=8), LOUD)]))
    assert set(stays.allocation) == {0}
    assert set(decide(state_of(ONE, [(runs, LOUD), (Job(gpus=8), QUIET)])).allocation) == {0}


def test_jobs_with_much_attained_service_come_after_all_others() -> None:
    runs, old = Job(gpus=8, occupied={0: 8}), Job(gpus=8, attained_gpu_s=3200.0)
    assert set(decide(state_of(ONE, [(runs, QUIET), (old, LOUD)])).allocation) == {0}
    assert set(decide(state_of(ONE, [(runs, QUIET), (old, LOUD)]), threshold_gpu_s=3201.0).allocation) == {1}


def test_it_stops_others_for_near_gpus_even_if_far_ones_are_free() -> None:
    jobs = [*HALF, (Job(gpus=8, occupied={2: 8}), QUIET)]
    loud = decide(state_of([Node()] * 3, [*jobs, (Job(gpus=8), LOUD)]), machine_s=0.0)
    assert loud.allocation[3] == Placement((2,), (8,)) and 2 not in loud.allocation
    quiet = decide(state_of([Node()] * 3, [*jobs, (Job(gpus=8), QUIET)]))
    assert quiet.allocation[3] == Placement((0, 1), (4, 4)) and 2 in quiet.allocation


def test_only_as_many_jobs_are_stopped_as_must_be_the_last_in_order_first() -> None:
    runs = [(Job(gpus=4, occupied={0: 4}), QUIET), (Job(gpus=4, occupied={0: 4}), QUIET)]
    decision = decide(state_of(ONE, [*runs, (Job(gpus=4), LOUD)]))
    assert set(decision.allocation) == {0, 2}


def test_timers_follow_the_waits_that_were_seen() -> None:
    """Three jobs of 8 GPUs found one node after about 500 s: the fourth, after 1,000 s, waits no longer for one."""
    runs = [(Job(gpus=8, occupied={node: 8}, preemptible=False), LOUD) for node in range(3)]
    half = [(Job(gpus=4, occupied={node: 4}, preemptible=False), QUIET) for node in (3, 4)]
    state = state_of([Node()] * 5, [*runs, *half, (Job(gpus=8), LOUD)])
    assert 5 not in decide(state, machine_s=5000.0, tune=False).allocation
    tuned = Dally(machine_s=5000.0)
    assert tuned.fork().decide(state).allocation[5] == Placement((3, 4), (4, 4))
    later = dataclasses.replace(state, time_s=400.0)
    assert 5 not in tuned.decide(later).allocation


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="machine_s is -1"):
        Dally(machine_s=-1)
    with pytest.raises(ValueError, match="window is 0"):
        Dally(window=0)


@given(states(max_jobs=10))
@settings(max_examples=60)
def test_every_decision_is_valid(state: ClusterState) -> None:
    policy = Dally()
    decision = policy.decide(state)
    assert policy.decide(state) == decision
    check(state, decision, policy.spec)
