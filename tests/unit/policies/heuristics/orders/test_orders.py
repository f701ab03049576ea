"""Each policy against the slow reference on random clusters, and its order law on small ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from policies.api import Decision, load_policy
from policies.errors import PolicyLoadError
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.reference import Cluster, Holding


def holdings(decision: Decision) -> dict[int, Holding]:
    return {row: dict(placement.items()) for row, placement in decision.allocation.items()}


def duration(state: ClusterState, job: int) -> float:
    estimate = float(state.jobs.duration_estimate_s[job])
    return math.inf if math.isnan(estimate) else estimate


def remaining(state: ClusterState, job: int) -> float:
    return max(duration(state, job) - float(state.jobs.service_s[job]), 0.0)


KEYS: dict[str, Callable[[ClusterState, int], float]] = {
    "fifo": lambda state, job: job,
    "fifo-skip": lambda state, job: job,
    "sjf": duration,
    "fewest-gpus": lambda state, job: state.jobs.num_gpus[job],
    "srtf": remaining,
    "las": lambda state, job: state.jobs.attained_gpu_s[job],
    "tiresias": lambda state, job: state.jobs.attained_gpu_s[job] >= 3200,
}
PREEMPTIVE = {"srtf", "las", "tiresias"}


def expected(name: str, state: ClusterState) -> dict[int, Holding]:
    reference = Cluster(state)
    order = sorted(range(len(state.jobs)), key=lambda job: KEYS[name](state, job))
    if name in PREEMPTIVE:
        return reference.select(order)
    waiting = [job for job in order if not reference.runs(job)]
    return reference.start_in_order(waiting, strict=name == "fifo")


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=40)
@given(state=states())
def test_decisions_on_any_cluster_are_those_of_the_reference(name: str, state: ClusterState) -> None:
    assert holdings(load_policy(name).decide(state)) == expected(name, state)


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=25)
@given(state=states(uniform=True, max_jobs=24))
def test_decisions_on_a_uniform_cluster_are_those_of_the_reference(name: str, state: ClusterState) -> None:
    assert holdings(load_policy(name).decide(state)) == expected(name, state)


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=40)
@given(state=states())
def test_every_policy_keeps_its_promises(name: str, state: ClusterState) -> None:
    policy = load_policy(name)
    decision = policy.decide(state)
    # The same state gives the same decision.
    assert policy.decide(state) == decision
    # The queue is every waiting job, in the order of the policy's key.
    assert sorted(decision.queue) == state.pending.tolist()
    keys = [(KEYS[name](state, job), job) for job in decision.queue]
    assert keys == sorted(keys)
    # Jobs that may not be stopped, and under policies that do not preempt all that run, stay where they are.
    for job in state.running.tolist():
        if not (state.jobs.preemptible[job] and policy.spec.preempts):
            assert decision.allocation[job] == state.jobs.placement(job)
    # Every newly placed job has a short reason.
    for job in set(decision.allocation) - set(state.running.tolist()):
        assert 0 < len(decision.reasons[job]) <= 200


def started(name: str, nodes: list[Node], jobs: list[Job]) -> set[int]:
    return set(load_policy(name).decide(cluster(nodes, jobs)).allocation)


def test_later_jobs_pass_the_head_with_fifo_skip_and_not_with_fifo() -> None:
    jobs = [Job(gpus=4), Job(gpus=8), Job(gpus=2)]
    assert started("fifo", [Node(gpus=8)], jobs) == {0}
    assert started("fifo-skip", [Node(gpus=8)], jobs) == {0, 2}


def test_sjf_takes_the_shortest_and_puts_jobs_without_estimate_last() -> None:
    jobs = [Job(gpus=8), Job(gpus=8, estimate_s=50), Job(gpus=8, estimate_s=5), Job(gpus=8, estimate_s=5)]
    assert started("sjf", [Node(gpus=8)], jobs) == {2}
    assert load_policy("sjf").decide(cluster([Node()], jobs)).queue == (2, 3, 1, 0)


def test_srtf_stops_a_longer_running_job_for_a_shorter_one() -> None:
    jobs = [Job(gpus=8, occupied={0: 8}, estimate_s=100, service_s=10), Job(gpus=8, estimate_s=20)]
    decision = load_policy("srtf").decide(cluster([Node(gpus=8)], jobs))
    assert set(decision.allocation) == {1}
    assert "stopped" in decision.reasons[0]


def test_srtf_keeps_a_job_that_is_not_preemptible() -> None:
    jobs = [Job(gpus=8, occupied={0: 8}, estimate_s=100, preemptible=False), Job(gpus=8, estimate_s=20)]
    assert started("srtf", [Node(gpus=8)], jobs) == {0}


def test_srtf_counts_time_already_run() -> None:
    jobs = [Job(gpus=8, occupied={0: 8}, estimate_s=100, service_s=90), Job(gpus=8, estimate_s=20)]
    assert started("srtf", [Node(gpus=8)], jobs) == {0}


def test_srtf_never_moves_a_running_job_to_make_room() -> None:
    # Two half-empty nodes hold 8 free GPUs, and the 8-GPU job waits: it would need a job to move.
    jobs = [
        Job(gpus=4, occupied={0: 4}, estimate_s=1),
        Job(gpus=4, occupied={1: 4}, estimate_s=1),
        Job(gpus=8, estimate_s=9),
    ]
    assert started("srtf", [Node(gpus=8)] * 2, jobs) == {0, 1}


def test_srtf_places_new_jobs_around_running_jobs_selected_after_them() -> None:
    # Job 1 is selected first and would sit on n0; job 0 comes later in the order, and keeps n0.
    jobs = [Job(gpus=4, occupied={0: 4}, estimate_s=50), Job(gpus=8, estimate_s=5)]
    decision = load_policy("srtf").decide(cluster([Node(gpus=8)] * 2, jobs))
    assert holdings(decision) == {0: {0: 4}, 1: {1: 8}}


def test_las_prefers_least_attained_service() -> None:
    jobs = [Job(gpus=8, occupied={0: 8}, attained_gpu_s=10), Job(gpus=8, attained_gpu_s=4)]
    assert started("las", [Node(gpus=8)], jobs) == {1}


def test_tiresias_does_not_preempt_within_a_queue() -> None:
    same_queue = [Job(gpus=8, occupied={0: 8}, attained_gpu_s=3000), Job(gpus=8)]
    assert started("tiresias", [Node(gpus=8)], same_queue) == {0}
    demoted = [Job(gpus=8, occupied={0: 8}, attained_gpu_s=3200), Job(gpus=8)]
    assert started("tiresias", [Node(gpus=8)], demoted) == {1}


def test_fewest_gpus_sorts_by_size_then_arrival() -> None:
    jobs = [Job(gpus=4), Job(gpus=2), Job(gpus=2)]
    assert load_policy("fewest-gpus").decide(cluster([Node(gpus=4)], jobs)).queue == (1, 2, 0)
    assert started("fewest-gpus", [Node(gpus=4)], jobs) == {1, 2}


def test_rounds_and_threshold_are_options() -> None:
    assert load_policy("las").spec.round_s == 300
    assert load_policy("las", {"round_s": 60}).spec.round_s == 60
    assert load_policy("tiresias", {"threshold_gpu_s": 100, "round_s": 0}).spec.round_s == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("las", {"round_s": -1}),
        ("tiresias", {"threshold_gpu_s": 0}),
        ("las", {"first_level_gpu_s": 0}),
        ("las", {"first_level_gpu_s": float("inf")}),
        ("las", {"round_s": math.nan}),
        ("fifo", {"a": 1}),
    ],
)
def test_bad_options_are_refused_by_name(name: str, options: dict[str, object]) -> None:
    with pytest.raises(PolicyLoadError, match=name):
        load_policy(name, options)


def test_without_jobs_a_decision_is_empty() -> None:
    for name in KEYS:
        assert load_policy(name).decide(cluster([], [])) == Decision({}, {}, ())
        assert load_policy(name).decide(cluster([Node()], [])) == Decision({}, {}, ())
        assert load_policy(name).decide(cluster([], [Job()])).allocation == {}
