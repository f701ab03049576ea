"""The jobs that headway-rl starts, stops, moves and defers, its reasons, and that no job waits for ever."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.policy import HeadwayRl
from policies.model import ClusterState, Placement
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from tests.unit.policies.learned.headway_rl.policies_of_weights import beginner, network
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, UNKNOWN, state_of
from tests.unit.policies.states.valid import check

BY_GPUS = {"gpus": 1.0, "log_stop": -4.0, "bulk": 1.0, "threshold": 0.4}
"""A second of a job is worth its GPUs: keep the cluster full."""
SOON = {"remaining": -1.0, "log_stop": -4.0, "bulk": 1.0, "threshold": 0.4}
"""And here the sooner it is done, the more."""


def test_loud_jobs_are_kept_apart_with_a_reason() -> None:
    runs = Job(gpus=12, occupied={0: 8, 1: 4}, estimate_s=600.0, preemptible=False)
    state = state_of([Node()] * 3, [(runs, LOUD), (Job(gpus=12, estimate_s=600.0), LOUD)])
    decision = HeadwayRl(network(**BY_GPUS)).decide(state)
    assert set(decision.allocation) == {0}
    assert decision.reasons[1].startswith("deferred: at best it would run at")
    assert decision.reasons[1].endswith("in total (weighted by value), most job 100")
    quiet = state_of([Node()] * 3, [(runs, QUIET), (Job(gpus=12, estimate_s=600.0), QUIET)])
    decision = HeadwayRl(network(**BY_GPUS)).decide(quiet)
    assert decision.allocation[1] == Placement((1, 2), (4, 8))
    assert decision.reasons[1].startswith(
        "starts on 2 nodes, n1 to n2: it would run at 100% of its ideal speed and slow others down by 0%"
    )


def test_the_set_that_is_worth_most_runs_not_the_first_that_fits() -> None:
    """Five jobs of eight GPUs come first in the order; two of four have a higher value together."""
    jobs = [(Job(gpus=gpus, estimate_s=600.0), QUIET) for gpus in (5, 4, 4)]
    weights = {**BY_GPUS, "bulk": 0.0}
    assert set(HeadwayRl(network(**weights)).decide(state_of([Node()], jobs)).allocation) == {1, 2}


def test_a_job_that_is_worth_more_takes_the_gpus_of_one_that_runs() -> None:
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=9000.0)
    jobs = [(runs, QUIET), (Job(gpus=8, estimate_s=300.0), QUIET)]
    decision = HeadwayRl(network(**SOON)).decide(state_of([Node()], jobs))
    assert decision.allocation == {1: Placement((0,), (8,))}
    assert decision.reasons[0].startswith("stopped: ")
    assert decision.reasons[1] == "starts on node n0: it would run at 100% of its ideal speed"


@pytest.mark.parametrize("why", ["not preemptible", "no preemption", "just started"])
def test_a_job_that_is_not_preemptible_is_not_stopped(why: str) -> None:
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=9000.0, preemptible=why != "not preemptible")
    jobs = [(runs, QUIET), (Job(gpus=8, estimate_s=300.0), QUIET)]
    policy = HeadwayRl(network(**SOON), preempt=why != "no preemption")
    state = state_of([Node()], jobs, time_s=550.0 if why == "just started" else 1000.0)
    decision = policy.decide(state)
    assert decision.allocation == {0: Placement((0,), (8,))}
    assert decision.reasons == {1: "waits: the free GPUs are reserved for jobs with a higher expected gain"}
    assert policy.spec.preempts == (why != "no preemption")


def test_a_stop_must_gain_more_than_it_costs() -> None:
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=310.0)
    jobs = [(runs, QUIET), (Job(gpus=8, estimate_s=300.0), QUIET)]
    assert set(HeadwayRl(network(**SOON)).decide(state_of([Node()], jobs)).allocation) == {1}
    assert set(HeadwayRl(network(**SOON | {"log_stop": -1.0})).decide(state_of([Node()], jobs)).allocation) == {0}


def test_a_running_job_that_is_in_the_way_moves() -> None:
    """A job of twelve GPUs would have to share a node with the running job of four, which moves to a node of its own."""
    runs = Job(gpus=4, occupied={0: 4}, estimate_s=600.0)
    jobs = [(runs, QUIET), (Job(gpus=8, estimate_s=600.0, nodes=frozenset({0})), QUIET)]
    decision = HeadwayRl(network(**BY_GPUS | {"bulk": -1.0})).decide(state_of([Node()] * 2, jobs))
    assert decision.allocation == {0: Placement((1,), (4,)), 1: Placement((0,), (8,))}
    assert decision.reasons[0].startswith("moves to node n1: it would run at 100%")


def test_a_job_starts_when_nothing_runs_whatever_its_gain() -> None:
    job = Job(gpus=16, estimate_s=600.0)
    state = state_of([Node(gpus=4)] * 4, [(job, LOUD)], rack=(0, 1, 2, 3))
    weights = BY_GPUS | {"threshold": 1.0}
    assert set(HeadwayRl(network(**weights)).decide(state).allocation) == {0}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> HeadwayRl:
    """Return a policy for which a job is late after 5,000 s, whatever its duration."""
    monkeypatch.setattr("policies.learned.headway_rl.policy.load", lambda _: network(**SOON))
    return HeadwayRl(patience_s=4999.5, stretch=0.0)


def test_the_oldest_late_job_comes_first_and_its_nodes_are_reserved(impatient: HeadwayRl) -> None:
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=9000.0, preemptible=False)
    jobs = [(Job(gpus=16, estimate_s=9000.0), QUIET), (runs, QUIET), (Job(gpus=1, estimate_s=60.0), QUIET)]
    late = state_of([Node()] * 2, jobs, time_s=5000.0)
    decision = impatient.decide(late)
    assert set(decision.allocation) == {1}
    assert decision.reasons[0] == "has waited longest; the nodes where it fits soonest are kept free for it"
    assert decision.queue == (0, 2)
    early = state_of([Node()] * 2, jobs, time_s=4000.0)
    assert set(impatient.decide(early).allocation) == {1, 2}
    # Other nodes take jobs as before.
    assert set(
        impatient.decide(
            state_of(
                [Node()] * 3,
                [(dataclasses.replace(jobs[0][0], nodes=frozenset({0, 1})), QUIET), *jobs[1:]],
                time_s=5000.0,
            )
        ).allocation
    ) == {1, 2}
    # One that may be stopped makes room.
    free = [jobs[0], (dataclasses.replace(runs, preemptible=True), QUIET), jobs[2]]
    assert set(impatient.decide(state_of([Node()] * 2, free, time_s=5000.0)).allocation) == {0}


def test_a_late_job_that_runs_is_not_stopped_and_no_younger_one_comes_first_meanwhile(impatient: HeadwayRl) -> None:
    """The first two jobs are late; the running one has a lower value than those that wait."""
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=9000.0)
    waits = Job(gpus=8, estimate_s=8000.0)
    jobs = [(runs, QUIET), (waits, QUIET), (Job(gpus=8, estimate_s=60.0), QUIET)]
    decision = impatient.decide(state_of([Node()], jobs, time_s=9000.0))
    assert decision.allocation == {0: Placement((0,), (8,))}
    # On a second node the order is by value: the shortest job, not the oldest.
    assert set(impatient.decide(state_of([Node()] * 2, jobs, time_s=9000.0)).allocation) == {0, 2}


@pytest.mark.parametrize("days", [0.5, 1.0, math.nan])
def test_a_late_job_that_runs_is_not_stopped(days: float) -> None:
    """The job started after 11 days of waiting."""
    day_s = 86_400.0
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=days * day_s, service_s=0.1 * day_s)
    state = state_of([Node()], [(runs, QUIET), *[(Job(gpus=1, estimate_s=600.0), QUIET)] * 8], time_s=11.1 * day_s)
    submitted_s = np.array([0.0, *[11.05 * day_s] * 8])
    state = dataclasses.replace(state, jobs=dataclasses.replace(state.jobs, submit_time_s=submitted_s))
    assert set(HeadwayRl().decide(state).allocation) == {0}


def test_many_old_jobs_that_last_for_days_do_not_become_fifo(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the last have waited for more than a week. By value the short ones come first, and nothing that runs is stopped."""
    monkeypatch.setattr("policies.learned.headway_rl.policy.load", lambda _: network(**SOON))
    day_s = 86_400.0
    runs = [
        (Job(gpus=4, occupied={0: 4}, service_s=8 * day_s, estimate_s=10 * day_s), QUIET),
        (Job(gpus=4, occupied={0: 4}, service_s=8 * day_s, estimate_s=11 * day_s), QUIET),
    ]
    long = [(Job(gpus=8, estimate_s=5 * day_s), QUIET)] * 6
    short = [(Job(gpus=4, estimate_s=0.5 * day_s), QUIET)] * 2
    state = state_of([Node()] * 2, [*runs, *long, *short], time_s=9 * day_s)
    allocation = HeadwayRl().decide(state).allocation
    assert {8, 9} <= set(allocation), "the short ones start"
    assert not set(range(2, 8)) & set(allocation), "those that last for days have not waited long for what they are"


def test_jobs_without_estimate_or_profile_have_typical_values_and_the_reason_says_so() -> None:
    state = state_of([Node()] * 2, [(Job(gpus=12), UNKNOWN), (Job(gpus=4, estimate_s=600.0), QUIET)])
    decision = beginner().decide(state)
    assert set(decision.allocation) == {0, 1}
    assert decision.reasons[0].endswith("(model not measured: typical values)")
    nothing = dataclasses.replace(state, profiles=None)
    assert set(beginner().decide(nothing).allocation) == {0, 1}


def test_a_node_on_which_more_is_used_than_there_is_keeps_its_jobs() -> None:
    state = state_of([Node(foreign_gpus=4)], [(Job(gpus=8, occupied={0: 8}), QUIET), (Job(gpus=2), QUIET)])
    assert beginner().decide(state).allocation == {0: Placement((0,), (8,))}


def test_no_job_goes_back_to_cpus_that_a_job_before_it_has_got() -> None:
    """The running job may only start on the node whose CPUs are not limited; where it is now, they are."""
    runs = Job(gpus=4, occupied={0: 4}, cpus_per_gpu=4.0, nodes=frozenset({1}), estimate_s=9000.0)
    waits = Job(gpus=4, cpus_per_gpu=4.0, nodes=frozenset({0}), estimate_s=300.0)
    state = state_of([Node(gpus=8, cpus=16.0), Node(gpus=8)], [(runs, QUIET), (waits, QUIET)])
    policy = HeadwayRl(network(**SOON))
    decision = policy.decide(state)
    check(state, decision, policy.spec, moves=True)
    assert decision.allocation[1] == Placement((0,), (4,))


@pytest.mark.parametrize(
    "options",
    [
        {"preempt": 1},
        {"patience_s": -1},
        {"stretch": -1},
        {"settle_s": math.nan},
        {"effort": 0.5},
        {"tail": -0.1},
        {"tail": math.inf},
        {"tail": 4.5},
        {"tail": "long"},
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.learned.headway_rl.policy.load", lambda _: network())
    with pytest.raises(ValueError, match=next(iter(options))):
        HeadwayRl(**options)  # type: ignore[arg-type] # wrong on purpose


@settings(max_examples=150, deadline=None)
@given(state=states(), preempt=st.booleans(), tail=st.sampled_from((0.0, 0.5, 4.0)))
def test_every_decision_is_valid(state: ClusterState, preempt: bool, tail: float) -> None:
    policy = beginner(preempt=preempt, tail=tail)
    decision = policy.decide(state)
    check(state, decision, policy.spec, moves=True)
    assert decision == policy.decide(state)
    assert all(len(reason) <= 200 for reason in decision.reasons.values())


@pytest.mark.parametrize(("tail", "starts"), [(0.0, 1), (0.5, 1), (4.0, 0)])
def test_with_a_larger_tail_an_old_long_job_passes_a_young_short_one(tail: float, starts: int) -> None:
    old, young = Job(gpus=8, estimate_s=9000.0), Job(gpus=8, estimate_s=300.0)
    state = state_of([Node()], [(old, QUIET), (young, QUIET)], time_s=86_400.0)
    jobs = dataclasses.replace(state.jobs, submit_time_s=np.array([0.0, 86_000.0]))
    state = dataclasses.replace(state, jobs=jobs)
    assert set(HeadwayRl(network(**SOON), tail=tail).decide(state).allocation) == {starts}


@settings(max_examples=50, deadline=None)
@given(state=states())
def test_without_a_tail_decisions_are_those_of_the_weights(state: ClusterState) -> None:
    assert beginner(tail=0.0).decide(state) == beginner().decide(state)


def test_a_tail_multiplies_values_by_a_power_of_the_age() -> None:
    waited = network(waited=0.25)
    rows = np.zeros((3, len(NAMES)))
    rows[:, NAMES.index("waited")] = np.log1p([0.0, 1.0, 7.0])
    values = waited.with_tail(0.5).values(rows)
    assert values / values[0] == pytest.approx([1.0, 2.0**0.75, 8.0**0.75])
    assert waited.with_tail(0.0) is waited
    assert waited.values(rows)[2] / waited.values(rows)[0] == pytest.approx(8.0**0.25)


def test_a_whole_trace_runs_to_its_end_and_sooner_than_under_contention_greedy() -> None:
    from policies.heuristics.contention_greedy import ContentionGreedy

    where, profiles = parse_cluster("4x8"), paper_profiles()
    trace = generate(
        ContentionRL(jobs=60, seed=3, mix="heavy", arrivals="poisson", load=0.9, demands=tuple(range(1, 33)))
    )
    means = []
    for policy in (beginner(), ContentionGreedy()):
        slowdown = build(["link-sharing"], topology=where.topology, profiles=profiles)
        simulation = Simulation(trace, where, policy, Settings(), slowdown, profiles)
        simulation.run()
        assert simulation.unfinished == []
        log = simulation.finished
        means.append(sum(log.finish[place] - trace.submit_ns[log.index[place]] for place in range(len(log.finish))))
    assert means[0] < means[1]


def test_decisions_every_minute_do_not_move_jobs_in_circles() -> None:
    """Decisions as a controller requests them: values drift with time, and a stop has to gain more than it costs."""
    where, profiles = parse_cluster("4x8"), paper_profiles()
    trace = generate(
        ContentionRL(jobs=14, seed=5, mix="heavy", arrivals="poisson", load=1.1, demands=tuple(range(1, 33)))
    )
    policy = beginner()
    policy.spec = dataclasses.replace(policy.spec, round_s=60.0)
    slowdown = build(["link-sharing"], topology=where.topology, profiles=profiles)
    simulation = Simulation(trace, where, policy, Settings(), slowdown, profiles)
    simulation.run()
    assert simulation.unfinished == []
    assert simulation.decisions > 200
    assert sum(simulation.finished.stops) + sum(simulation.finished.moves) <= 2 * len(trace)


def test_the_rule_before_training_takes_no_weights() -> None:
    jobs = [(Job(gpus=gpus, estimate_s=600.0 * gpus), QUIET) for gpus in (5, 4, 4, 2)]
    state = state_of([Node()], jobs)
    begins = HeadwayRl(network(**SOON), values="start").decide(state)
    assert begins == beginner().decide(state)
    with pytest.raises(ValueError, match="values is 'first'; give learned or wide or start"):
        HeadwayRl(values="first")
