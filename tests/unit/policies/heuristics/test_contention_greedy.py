"""Contention-greedy: where it starts jobs, which jobs it defers, and that no job is deferred for ever."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Decision
from policies.heuristics.contention_greedy import ContentionGreedy
from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity
from policies.placement.candidates import candidates
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, UNKNOWN, state_of
from tests.unit.policies.states.valid import check


def decide(state: ClusterState, **options: object) -> Decision:
    return ContentionGreedy(**options).decide(state)  # type: ignore[arg-type] # options by name


RUNS = Job(gpus=12, occupied={0: 8, 1: 4})


def test_a_job_that_would_slow_another_down_too_much_is_deferred_with_a_reason() -> None:
    state = state_of([Node()] * 2, [(RUNS, LOUD), (Job(gpus=4, split=Split.EVEN, min_nodes=1), LOUD)])
    assert decide(state).allocation[1] == Placement((1,), (4,))  # on one node it disturbs no job
    wide = state_of([Node()] * 3, [(RUNS, LOUD), (Job(gpus=12), LOUD)])
    decision = decide(wide)
    assert set(decision.allocation) == {0}
    assert "deferred: at best it would run at" in decision.reasons[1]
    assert "of its ideal speed and slow others down by" in decision.reasons[1]
    assert "most job 100; it starts when the gain is at least 60%" in decision.reasons[1]


def test_jobs_that_hardly_communicate_share_links() -> None:
    decision = decide(state_of([Node()] * 3, [(RUNS, QUIET), (Job(gpus=12), QUIET)]))
    assert decision.allocation[1] == Placement((1, 2), (4, 8))
    assert "2 nodes, n1 to n2: it would run at 100% of its ideal speed" in decision.reasons[1]


def test_a_job_starts_at_the_placement_with_the_largest_gain() -> None:
    # Best fit would use n1, where a job communicates; the free GPUs of n3 are as good
    jobs = [(RUNS, LOUD), (Job(gpus=3, occupied={3: 3}), QUIET), (Job(gpus=12), LOUD)]
    state = state_of([Node()] * 4, jobs)
    assert decide(state).allocation[2] == Placement((2, 3), (8, 4))


def test_jobs_stay_in_one_rack_where_uplinks_are_narrow() -> None:
    rack = (0, 0, 1, 1)
    jobs = [(Job(gpus=8, occupied={0: 8}), QUIET), (Job(gpus=16), LOUD)]
    assert decide(state_of([Node()] * 4, jobs, rack=rack)).allocation[1] == Placement((2, 3), (8, 8))


def test_the_first_job_starts_whatever_its_gain_when_nothing_runs() -> None:
    """A job that must be spread over racks never reaches its ideal speed."""
    job = Job(gpus=4, split=Split.FIXED, min_nodes=4)
    state = state_of([Node()] * 4, [(job, LOUD), (job, LOUD)], rack=(0, 1, 2, 3))
    decision = decide(state, threshold=1.0)
    assert list(decision.allocation) == [0]
    assert "deferred" in decision.reasons[1]


def test_the_oldest_late_job_is_no_longer_deferred_and_its_nodes_are_reserved() -> None:
    runs = dataclasses.replace(RUNS, service_s=4500.0)
    jobs = [(runs, LOUD), (Job(gpus=12), LOUD), (Job(gpus=1), QUIET)]
    late = state_of([Node()] * 3, jobs, time_s=5000.0)
    assert set(decide(late).allocation) == {0, 2}
    assert set(decide(late, patience_s=4000.0).allocation) == {0, 1}  # nothing is left for the last
    full = state_of([Node()] * 2, jobs, time_s=5000.0)
    decision = decide(full, patience_s=4000.0)
    assert set(decision.allocation) == {0}
    assert decision.reasons[1] == "has waited longest; the nodes where it fits soonest are kept free for it"
    assert decision.queue == (1, 2)


def test_jobs_that_end_before_a_late_job_can_start_pass_it() -> None:
    runs = dataclasses.replace(RUNS, service_s=4500.0, estimate_s=9000.0)
    jobs = [
        (runs, QUIET),
        (Job(gpus=12), QUIET),
        (Job(gpus=1, estimate_s=100_000.0), QUIET),
        (Job(gpus=1, estimate_s=600.0), QUIET),
    ]
    state = state_of([Node()] * 2, jobs, time_s=5000.0)
    assert set(decide(state, patience_s=4000.0).allocation) == {0, 3}


def test_no_job_passes_a_late_one_while_its_start_is_not_known() -> None:
    """The job that runs has no estimate."""
    runs = dataclasses.replace(RUNS, service_s=4500.0)
    jobs = [(runs, QUIET), (Job(gpus=12), QUIET), (Job(gpus=1, estimate_s=2_592_000.0), QUIET)]
    state = state_of([Node()] * 2, jobs, time_s=5000.0)
    assert set(decide(state, patience_s=4000.0).allocation) == {0}


def test_no_younger_job_comes_first_while_an_older_late_one_runs() -> None:
    """The running job waited for most of its time, so the second job waits until it ends, and no node is reserved for it."""
    state = state_of([Node()] * 2, [(RUNS, QUIET), (Job(gpus=12), QUIET), (Job(gpus=1), QUIET)], time_s=5000.0)
    assert set(decide(state, patience_s=4000.0).allocation) == {0, 2}


def test_a_job_is_late_when_it_waited_long_for_its_duration() -> None:
    runs = dataclasses.replace(RUNS, service_s=8500.0)
    jobs = [(runs, QUIET), (Job(gpus=12, estimate_s=1000.0), QUIET), (Job(gpus=1), QUIET)]
    state = state_of([Node()] * 2, jobs, time_s=9000.0)
    assert set(decide(state, patience_s=4000.0, stretch=10.0).allocation) == {0, 2}
    assert set(decide(state, patience_s=4000.0, stretch=5.0).allocation) == {0}


def test_jobs_are_started_in_the_order_of_the_policy() -> None:
    sizes = [
        (Job(gpus=8, estimate_s=10), QUIET),
        (Job(gpus=2, estimate_s=30), QUIET),
        (Job(gpus=4, estimate_s=20), QUIET),
    ]
    state = state_of([Node()], sizes)
    queues = {order: decide(state, order=order).queue for order in ("fifo", "gpus", "shortest", "area")}
    assert queues == {"fifo": (0, 1, 2), "gpus": (1, 2, 0), "shortest": (0, 2, 1), "area": (1, 0, 2)}


def test_jobs_without_measurements_have_typical_values_and_the_reason_says_so() -> None:
    decision = decide(state_of([Node()] * 3, [(RUNS, LOUD), (Job(gpus=12), UNKNOWN)]))
    assert decision.reasons[1].endswith("(model not measured: typical values)")


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 1.5},
        {"threshold": -1},
        {"order": "best"},
        {"weight": 2},
        {"law": "gravity"},
        {"patience_s": math.inf},
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        decide(state_of([Node()], []), **options)


@settings(max_examples=150, deadline=None)
@given(state=states(), threshold=st.sampled_from([0.0, 0.6, 1.0]), patience_s=st.sampled_from([0.0, 600.0, 1e9]))
def test_every_decision_is_valid(state: ClusterState, threshold: float, patience_s: float) -> None:
    policy = ContentionGreedy(threshold=threshold, patience_s=patience_s)
    decision = policy.decide(state)
    check(state, decision, policy.spec)
    assert decision == policy.decide(state)
    assert all(len(reason) <= 200 for reason in decision.reasons.values())


@settings(max_examples=150, deadline=None)
@given(state=states())
def test_candidates_are_few_and_each_fits(state: ClusterState) -> None:
    capacity = Capacity(state)
    for row in state.pending.tolist():
        places = list(candidates(capacity, row, lambda _: 0))
        assert len(places) == len(set(places)) <= 200
        best_fit = capacity.place(row)
        assert best_fit is None or places[0] == best_fit
        for place in places:
            allocation = {other: state.jobs.placement(other) for other in state.running.tolist()} | {row: place}
            check(state, Decision(allocation, {row: "x"}, tuple(state.pending.tolist())), ContentionGreedy.spec)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [0.6, 1.0])
def test_a_whole_trace_runs_to_its_end_under_contention(threshold: float) -> None:
    where = parse_cluster("4x8")
    trace = generate(ContentionRL(jobs=40, seed=3, mix="heavy", demands=tuple(range(1, 33))))
    profiles = paper_profiles()
    slowdown = build(["link-sharing"], topology=where.topology, profiles=profiles)
    policy = ContentionGreedy(threshold=threshold)
    simulation = Simulation(trace, where, policy, Settings(), slowdown, profiles)
    simulation.run()
    assert simulation.unfinished == []
