"""DRF and Tetris with jobs that grow: their laws, plain restatements of both, and whole runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Policy, load_policy
from policies.heuristics.allocation.drf import Claims, Drf
from policies.heuristics.allocation.optimus import Optimus
from policies.heuristics.allocation.tetris import Tetris
from policies.model import ClusterState, Split
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S
from tests.unit.policies.heuristics.allocation.test_optimus import elastic_trace
from tests.unit.policies.heuristics.allocation.test_optimus_tries import STARTED_S, elastic_states
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check_resizing
from tests.unit.simulator.engine.build import audit_gpus, spans

GROWING: tuple[Policy, ...] = (
    Drf(elastic=True),
    Drf(elastic=True, between="users", layout="anywhere"),
    Tetris(elastic=True),
    Tetris(elastic=True, threshold=2, layout="anywhere", time_weight=0.0),
)
LATE_S = STARTED_S + 1200


def decide(policy: Policy, nodes: list[Node], *jobs: Job, time_s: float = LATE_S) -> dict[int, int]:
    """GPUs by job."""
    decision = policy.decide(cluster(nodes, jobs, time_s=time_s))
    return {row: placement.num_gpus for row, placement in decision.allocation.items()}


@pytest.mark.parametrize("policy", GROWING[:3], ids=lambda policy: policy.spec.name)
def test_a_size_that_cannot_be_divided_evenly_becomes_a_smaller_one(policy: Policy) -> None:
    # given 7 free GPUs on two nodes of 4, of which no two nodes have the same share
    young = Job(gpus=1, occupied={0: 1})
    grows = Job(gpus=2, split=Split.EVEN, sizes=(1, 8))
    # then the job gets 6, and does not wait
    assert decide(policy, [Node(4), Node(4)], young, grows, time_s=STARTED_S + 10)[1] == 6
    # and a job that can only have 7 waits
    assert decide(policy, [Node(4), Node(4)], young, replace(grows, gpus=7, sizes=(7, 8)), time_s=STARTED_S + 10) == {
        0: 1
    }


@st.composite
def claims(draw: st.DrawFn) -> tuple[Claims, dict[int, list[float]], int]:
    """Up to six jobs of up to three owners, some with GPUs already."""
    count = draw(st.integers(1, 6))
    least = [draw(st.integers(1, 4)) for _ in range(count)]
    # Sixteenths add up without rounding
    tasks = np.array([[draw(st.integers(0, 4)) / 16, draw(st.integers(0, 4)) / 16] for _ in range(count)])
    owner = [draw(st.integers(0, 2)) for _ in range(count)]
    occupied = {user: [draw(st.integers(0, 8)) / 16, 0.0] for user in set(owner) if draw(st.booleans())}
    most = [low + draw(st.integers(0, 5)) for low in least]
    return Claims(least, most, tasks, owner), occupied, draw(st.integers(0, 16))


def column(occupied: dict[int, list[float]]) -> defaultdict[int, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    return defaultdict(lambda: np.zeros(2), {user: np.array(shares) for user, shares in occupied.items()})


def filled(claims: Claims, before: dict[int, list[float]], gpus: int) -> dict[int, int]:
    """Give tasks one by one; the shares of all owners are computed anew for each."""
    sizes: dict[int, int] = {}
    given_up: set[int] = set()
    while gpus:
        occupied = {user: list(before.get(user, [0.0, 0.0])) for user in claims.owner}
        for row, size in sizes.items():
            for kind in range(2):
                occupied[claims.owner[row]][kind] += size * claims.tasks[row][kind]
        wanting = [
            (max(occupied[user]), row, user)
            for user in occupied
            for _, row in sorted(
                (sizes.get(row, 0) * max(claims.tasks[row]), row)
                for row in range(len(claims.owner))
                if claims.owner[row] == user and row not in given_up and sizes.get(row, 0) < claims.most[row]
            )[:1]
        ]
        if not wanting:
            break
        _, row, _ = min(wanting)
        task = 1 if row in sizes else claims.least[row]
        if task > gpus:
            given_up.add(row)
        else:
            gpus -= task
            sizes[row] = sizes.get(row, 0) + task
    return sizes


class TestDrf:
    @settings(max_examples=300)
    @given(claims())
    def test_gpus_are_given_one_by_one(self, drawn: tuple[Claims, dict[int, list[float]], int]) -> None:
        claims, before, gpus = drawn
        order = range(len(claims.owner))
        assert claims.fill(order, column(before), gpus) == filled(claims, before, gpus)

    @settings(max_examples=200)
    @given(claims())
    def test_no_job_that_can_grow_has_less_than_others_had_before_their_last_task(
        self, drawn: tuple[Claims, dict[int, list[float]], int]
    ) -> None:
        claims, _, gpus = drawn
        claims = replace(claims, owner=range(len(claims.owner)))
        sizes = claims.fill(claims.owner, column({}), gpus)
        dominant = claims.tasks.max(axis=1)
        assert sum(sizes.values()) <= gpus
        growing = [row for row, size in sizes.items() if size < claims.most[row]]
        if growing:
            assert sum(sizes.values()) == gpus
        for row in growing:
            for other, size in sizes.items():
                if size > claims.least[other]:
                    assert (size - 1) * dominant[other] <= sizes[row] * dominant[row]

    def test_equal_jobs_get_equal_numbers_of_gpus(self) -> None:
        wide = Job(gpus=2, sizes=(1, 8))
        assert decide(Drf(elastic=True), [Node()] * 3, *[wide] * 3) == {0: 8, 1: 8, 2: 8}
        assert decide(Drf(elastic=True), [Node(gpus=16)], wide, wide, Job(gpus=6)) == {0: 5, 1: 5, 2: 6}
        assert decide(Drf(elastic=True), [Node()], wide, Job(gpus=2, sizes=(1, 2)), wide) == {0: 3, 1: 2, 2: 3}

    def test_the_dominant_resource_of_a_worker_counts(self) -> None:
        """With 8 GPUs and 16 cores, a worker of the first job needs half the cores of 4 GPUs, one of the second one core."""
        nodes = [Node(gpus=8, cpus=16)]
        many, few = Job(sizes=(1, 8), cpus_per_gpu=4), Job(sizes=(1, 8), cpus_per_gpu=0.5)
        assert decide(Drf(elastic=True), nodes, many, few) == {0: 3, 1: 5}

    def test_a_new_job_makes_old_ones_shrink_and_not_young_ones(self) -> None:
        old = Job(gpus=4, sizes=(1, 8), occupied={0: 8})
        assert decide(Drf(elastic=True), [Node()], old, Job(gpus=2, sizes=(1, 8))) == {0: 4, 1: 4}
        assert decide(Drf(elastic=True), [Node()], old, Job(gpus=2, sizes=(1, 8)), time_s=LATE_S - 1) == {0: 8}
        assert decide(Drf(elastic=True, round_s=60), [Node()], old, Job(gpus=8), time_s=LATE_S - 1) == {0: 8}

    def test_with_shares_by_user_users_get_equal_shares(self) -> None:
        wide = Job(gpus=2, sizes=(1, 16))
        state = cluster([Node(gpus=12)], [wide] * 3, time_s=LATE_S)
        jobs = replace(state.jobs, user=np.array([0, 0, 1]), users=("ada", "bob"))
        for between, expected in (("users", {0: 3, 1: 3, 2: 6}), ("jobs", {0: 4, 1: 4, 2: 4})):
            decision = Drf(between=between, elastic=True).decide(replace(state, jobs=jobs))
            assert {row: placement.num_gpus for row, placement in decision.allocation.items()} == expected


def grown(state: ClusterState, threshold: int, time_weight: float) -> dict[int, int]:
    """Tetris' sizes for an empty cluster without limits but GPUs."""
    jobs = state.jobs
    total = int(state.nodes.gpus.sum())
    left, sizes = total, {}
    rows = set(range(len(jobs)))
    while rows := {row for row in rows if jobs.sizes[0][row] <= left}:
        known = [state.remaining_s[row] for row in rows if math.isfinite(state.remaining_s[row])]
        scale = (sum(known) / len(known) if known else 0.0) or 1.0
        # One GPU is the same share for all: packing is equal, and the soonest done is best
        best = min(
            rows, key=lambda row: (round(time_weight * state.remaining_s[row] / scale, 9) if time_weight else 0, row)
        )
        low, high = (int(column[best]) for column in jobs.sizes)
        sizes[best] = min(max(low, min(high, threshold)), left)
        left -= sizes[best]
        rows.remove(best)
    return sizes


class TestTetris:
    @settings(max_examples=200)
    @given(
        st.lists(
            st.tuples(st.integers(1, 4), st.integers(0, 9), st.sampled_from([1.0, 2.0, 5.0, math.nan])),
            min_size=1,
            max_size=7,
        ),
        st.integers(1, 9),
        st.sampled_from([0.0, 1.0]),
    )
    def test_the_best_grows_to_the_threshold_then_the_next(
        self, rows: list[tuple[int, int, float]], threshold: int, weight: float
    ) -> None:
        jobs = [Job(gpus=low, sizes=(low, low + more), estimate_s=seconds) for low, more, seconds in rows]
        # On one node everything finds a place
        state = cluster([Node(gpus=16)], jobs, time_s=LATE_S)
        decision = Tetris(time_weight=weight, elastic=True, threshold=threshold).decide(state)
        found = {row: placement.num_gpus for row, placement in decision.allocation.items()}
        assert found == grown(state, threshold, weight)

    def test_by_hand(self) -> None:
        wide = Job(gpus=2, sizes=(1, 16), estimate_s=900)
        soon = replace(wide, estimate_s=100)
        assert decide(Tetris(elastic=True), [Node(gpus=16)], wide, soon, Job(gpus=1)) == {0: 8, 1: 8}
        assert decide(Tetris(elastic=True, threshold=4), [Node(gpus=16)], wide, soon, Job(gpus=1)) == {0: 4, 1: 4, 2: 1}
        assert decide(Tetris(elastic=True, threshold=4), [Node(gpus=16)], wide, Job(gpus=6, estimate_s=1)) == {
            0: 4,
            1: 6,
        }

    def test_alignment_counts_more_than_the_number_of_gpus(self) -> None:
        """If time does not count, the task that takes most of the free resources comes first."""
        nodes = [Node(gpus=8, cpus=16)]
        light, heavy = Job(sizes=(1, 8), cpus_per_gpu=0.5), Job(sizes=(1, 4), cpus_per_gpu=3)
        assert decide(Tetris(time_weight=0.0, elastic=True), nodes, light, heavy) == {0: 4, 1: 4}

    def test_a_job_with_a_better_score_stops_an_old_one_and_not_a_young_one(self) -> None:
        old = Job(gpus=4, sizes=(4, 8), occupied={0: 8}, estimate_s=5000)
        soon = Job(gpus=8, estimate_s=10)
        assert decide(Tetris(elastic=True), [Node()], old, soon) == {1: 8}
        assert decide(Tetris(elastic=True), [Node()], old, soon, time_s=LATE_S - 1) == {0: 8}


@pytest.mark.parametrize("policy", GROWING)
@settings(max_examples=100)
@given(state=elastic_states(), late=st.booleans())
def test_every_decision_is_valid(policy: Policy, state: ClusterState, late: bool) -> None:
    state = replace(state, time_s=LATE_S + 1000 if late else state.time_s)
    check_resizing(policy, state, settled=lambda row: state.time_s - state.jobs.start_time_s[row] >= 1200)


@pytest.mark.parametrize("name", ["drf", "tetris"])
def test_jobs_are_resized_only_with_the_option(name: str) -> None:
    plain, growing = load_policy(name), load_policy(name, {"elastic": True, "round_s": 300.0})
    assert (plain.spec.resizes, plain.spec.preempts, plain.spec.round_s) == (False, False, 0.0)
    assert (growing.spec.resizes, growing.spec.preempts, growing.spec.round_s) == (True, True, 300.0)
    with pytest.raises(Exception, match="elastic is 'yes'; give true or false"):
        load_policy(name, {"elastic": "yes"})
    assert replace(growing.spec, resizes=False, preempts=False, round_s=0.0) == plain.spec


@pytest.mark.parametrize("policy", [Drf(elastic=True), Tetris(elastic=True)])
def test_in_runs_jobs_are_resized_within_their_ranges_and_finish(policy: Policy) -> None:
    trace, machine, profiles = elastic_trace(), parse_cluster("3x8"), paper_profiles()
    models = build(("locality", "scaling"), topology=machine.topology, profiles=profiles)
    simulation = Simulation(trace, machine, policy, Settings(preempt_cost_s=30.0, record=True), models, profiles)
    simulation.run()
    log = simulation.finished
    assert sorted(log.index) == list(range(40))
    assert sum(log.resizes) >= 10
    occupied = {(span.job, sum(span.occupied.values())) for span in spans(simulation)}
    assert all(trace.min_gpus[job] <= gpus <= trace.max_gpus[job] for job, gpus in occupied)
    assert any(gpus > trace.num_gpus[job] for job, gpus in occupied)
    audit_gpus(simulation)
    finishes = dict(zip(log.index, log.finish, strict=True))
    ended_early = [span for span in spans(simulation) if span.end < finishes[span.job]]
    assert min(span.end - span.start for span in ended_early) >= 1200 * NS_PER_S


@pytest.mark.parametrize("make", [Optimus, lambda: Drf(elastic=True), lambda: Tetris(elastic=True)])
@settings(max_examples=60)
@given(data=st.data())
def test_earlier_decisions_do_not_matter(make: Callable[[], Policy], data: st.DataObject) -> None:
    """The last decision is not used for the next state, even if only the time or one column differs."""
    state = data.draw(states(max_jobs=8))
    policy = make()
    for _ in range(3):
        assert policy.decide(state) == make().decide(state)
        jobs, nodes = state.jobs, state.nodes
        if not len(jobs):
            break
        row = data.draw(st.integers(0, len(jobs) - 1))
        flipped = jobs.preemptible.copy()
        flipped[row] = not flipped[row]
        up = nodes.available.copy()
        up[0] = not up[0]
        smaller = jobs.num_gpus.copy()
        smaller[row] = 1
        state = data.draw(
            st.sampled_from(
                [
                    replace(state, time_s=state.time_s + 300),
                    replace(state, jobs=replace(jobs, preemptible=flipped)),
                    replace(state, nodes=replace(nodes, available=up)),
                    replace(state, jobs=replace(jobs, num_gpus=smaller)),
                ]
            )
        )
