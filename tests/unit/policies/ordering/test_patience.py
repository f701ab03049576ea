"""Late jobs: when a job is late, which late job comes first, and that long queues of long jobs are not served in order."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from policies.heuristics.contention_greedy import ContentionGreedy
from policies.heuristics.orders.srtf import Srtf
from policies.learned.headway_rl.policy import HeadwayRl
from policies.ordering.patience import RESERVED, Patience, Reservation, head_of, reserve
from policies.placement.best_fit import Capacity
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.traces.trace import Trace
from tests.unit.policies.states.cluster import Job, Node, cluster

DAY_S = 86_400.0


def test_a_job_is_late_when_it_waited_long_for_its_duration() -> None:
    jobs = [
        Job(estimate_s=DAY_S),
        Job(estimate_s=0.5 * DAY_S),
        Job(),
        Job(estimate_s=0.5 * DAY_S, service_s=2 * DAY_S),
    ]
    state = cluster([Node()], jobs, time_s=8 * DAY_S)
    assert Patience(stretch=10.0).late(state).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    "wrong", [{"patience_s": math.nan}, {"patience_s": -1.0}, {"stretch": -1.0}, {"stretch": True}]
)
def test_impossible_options_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Patience(**wrong)


def test_the_head_is_the_oldest_and_only_while_no_older_late_one_runs() -> None:
    state = cluster([Node()], [Job(), Job(occupied={0: 1}), Job()])
    assert head_of(state, np.array([True, True, True])) == 0
    assert head_of(state, np.array([False, True, True])) is None
    assert head_of(state, np.array([False, False, True])) == 2
    assert head_of(state, np.array([False, True, False])) is None


def test_a_late_job_that_fits_nowhere_delays_no_other_late_job() -> None:
    up_and_down = [Node(), Node(available=False)]
    state = cluster(up_and_down, [Job(gpus=16), Job(gpus=16), Job(gpus=8), Job(gpus=4, occupied={0: 4}), Job(gpus=1)])
    all_jobs = np.array([True, True, True, False, True])
    assert head_of(state, all_jobs) == 2
    assert head_of(state, np.array([True, True, False, False, False])) is None
    assert head_of(state, np.array([True, True, False, True, True])) is None  # the one that runs is older
    assert head_of(cluster([Node()] * 2, [Job(gpus=16), Job(gpus=8)]), np.array([True, True])) == 0
    shared = cluster([Node(foreign_gpus=1), Node()], [Job(gpus=8, nodes=frozenset({0})), Job(gpus=8)])
    assert head_of(shared, np.array([True, True])) == 1


def test_nodes_are_reserved_for_a_job_that_only_fits_divided_unevenly() -> None:
    """Best fit would need a whole node for it."""
    state = cluster([Node(foreign_gpus=1)] * 2, [Job(gpus=12), Job(gpus=4, occupied={1: 4}, estimate_s=300.0)])
    assert head_of(state, np.array([True, False])) == 0
    assert reserve(state, Capacity(state), 0, state.running) == Reservation((0, 1), 300.0)


@pytest.mark.parametrize("policy", [ContentionGreedy(order="shortest"), HeadwayRl()])
def test_a_late_job_after_one_that_fits_nowhere_gets_reserved_nodes(policy: ContentionGreedy | HeadwayRl) -> None:
    old = [Job(gpus=16, estimate_s=3600.0), Job(gpus=8, estimate_s=3600.0)]
    new = [Job(gpus=4, estimate_s=7200.0)] * 3
    runs = Job(gpus=4, occupied={0: 4}, estimate_s=3600.0, service_s=60 * DAY_S, preemptible=False)
    state = cluster([Node(), Node(available=False)], [*old, runs, *new], time_s=60 * DAY_S)
    submitted_s = np.array([0.0, DAY_S, 2 * DAY_S, *[60 * DAY_S - 60] * 3])
    state = dataclasses.replace(state, jobs=dataclasses.replace(state.jobs, submit_time_s=submitted_s))
    decision = policy.decide(state)
    assert (set(decision.allocation), decision.reasons[1]) == ({2}, RESERVED)


@pytest.mark.parametrize(("estimate_s", "stops"), [(20 * DAY_S, True), (0.5 * DAY_S, False)])
def test_a_running_job_is_stopped_although_it_has_waited_for_a_week_unless_it_was_late(
    estimate_s: float, stops: bool
) -> None:
    """Where queues last for weeks, most running jobs have waited for one, and short jobs must not wait for them."""
    runs = Job(gpus=8, occupied={0: 8}, estimate_s=estimate_s, service_s=0.1 * DAY_S)
    state = cluster([Node()], [runs, Job(gpus=8, estimate_s=600.0)], time_s=9 * DAY_S)
    submitted_s, started_s = np.array([0.0, 8.9 * DAY_S]), np.array([8.8 * DAY_S, math.nan])
    jobs = dataclasses.replace(state.jobs, submit_time_s=submitted_s, start_time_s=started_s)
    state = dataclasses.replace(state, jobs=jobs)
    assert (1 in HeadwayRl().decide(state).allocation) is stops


def test_nodes_are_reserved_where_jobs_end_first() -> None:
    runs = [Job(gpus=8, occupied={node: 8}, estimate_s=left_s) for node, left_s in enumerate((900.0, 300.0, math.nan))]
    state = cluster([Node()] * 3, [*runs, Job(gpus=8), Job(gpus=16), Job(gpus=32), Job(gpus=1)])
    capacity = Capacity(state)
    assert reserve(state, capacity, 3, state.running) == Reservation((1,), 300.0)
    assert reserve(state, capacity, 4, state.running) == Reservation((0, 1), 900.0)
    assert reserve(state, capacity, 5, state.running) == Reservation()  # the cluster is too small
    capacity.seal((1,))
    assert Capacity(cluster([Node()], [Job()])).place(0) is not None
    sealed = Capacity(cluster([Node()] * 2, [Job(gpus=8)] * 2))
    sealed.seal((0,))
    place = sealed.place(0)
    assert place is not None
    assert place.nodes == (1,)
    assert sealed.total_free() == 8


def heavy_tailed(jobs: int, seed: int, gpus: int) -> Trace:
    """Jobs at a load of 1 for a cluster of so many GPUs: nine in ten last for minutes to hours, the others for days."""
    dice = np.random.default_rng(seed)
    long = dice.random(jobs) < 0.1
    duration_s = np.where(long, dice.uniform(3, 20, jobs) * DAY_S, dice.lognormal(8.0, 1.2, jobs))
    size = dice.choice([1, 2, 4, 8], jobs, p=[0.6, 0.2, 0.1, 0.1])
    span_s = float((duration_s * size).sum()) / gpus
    submit_s = np.sort(dice.uniform(0.0, span_s, jobs))
    whole = (1e9 * submit_s).astype(np.int64), size.astype(np.int64), (1e9 * duration_s).astype(np.int64)
    return Trace.of("heavy-tailed", [str(number) for number in range(jobs)], *whole)


def mean_jct_s(trace: Trace, policy: object) -> tuple[float, int]:
    """Mean time from submission to the end, and how many stops there were."""
    simulation = Simulation(trace, parse_cluster("3x8"), policy, Settings())  # type: ignore[arg-type]
    simulation.run()
    log = simulation.finished
    assert simulation.unfinished == []
    spans = [log.finish[place] - trace.submit_ns[log.index[place]] for place in range(len(log.finish))]
    return float(np.mean(spans)) / 1e9, sum(log.stops)


def test_long_queues_of_long_jobs_do_not_become_fifo() -> None:
    trace = heavy_tailed(160, 1, 24)
    srtf_s, srtf_stops = mean_jct_s(trace, Srtf())
    ours_s, stops = mean_jct_s(trace, HeadwayRl())
    assert ours_s < 1.3 * srtf_s, f"{ours_s:.0f} s against {srtf_s:.0f} s"
    assert stops <= 3 * srtf_stops + 20
    still_s, none = mean_jct_s(trace, HeadwayRl(preempt=False))
    endless_s, _ = mean_jct_s(trace, HeadwayRl(preempt=False, patience_s=1e12))
    assert (still_s < 1.3 * endless_s, none) == (True, 0)
    greedy_s, _ = mean_jct_s(trace, ContentionGreedy())
    endless_s, _ = mean_jct_s(trace, ContentionGreedy(patience_s=1e12))
    assert greedy_s < 1.2 * endless_s
