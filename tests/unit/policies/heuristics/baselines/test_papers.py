"""The papers' baselines: the placement of each rule, the job that each starts first, and that every decision is valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Policy, load_policy, policy_names
from policies.heuristics.allocation.drf import Drf
from policies.heuristics.allocation.tetris import Tetris
from policies.heuristics.baselines.marl import MarlLb, MarlLif, MarlTetris
from policies.heuristics.baselines.rl_taps import RlTapsRandom, RlTapsSjf, RlTapsTetris
from policies.heuristics.baselines.sched2 import Sched2Dsif, Sched2Fifo, Sched2Lrf, Sched2Saf, Sched2Sif, Sched2Spf
from policies.model import ClusterState, ProfileTable
from policies.placement.best_fit import Capacity
from policies.placement.paper_rules import FIRST_FIT, PACKING, bin_packing, least_load
from policies.placement.rules import PlacementRule
from policies.speeds.host_interference import HostInterference, Residents
from policies.wire.state import parse_state, serialize_state, state_digest
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check

POLICIES: tuple[Callable[[], Policy], ...] = (
    Sched2Sif,
    Sched2Dsif,
    Sched2Saf,
    Sched2Lrf,
    Sched2Spf,
    Sched2Fifo,
    lambda: Sched2Saf(window=3),
    Drf,
    lambda: Drf(between="users", layout="anywhere"),
    Tetris,
    lambda: Tetris(layout="anywhere"),
    RlTapsRandom,
    RlTapsSjf,
    RlTapsTetris,
    MarlTetris,
    MarlLb,
    MarlLif,
)
FAST, SLOW = 0, 1
"""Models: one loses little when it is scattered and uses few cores, one much and many."""


def profiled(state: ClusterState, of_job: Sequence[int], racks: Sequence[int] | None = None) -> ClusterState:
    """The same state, where jobs train these models (-1: not measured)."""
    profiles = ProfileTable(
        models=("fast", "slow"),
        of_job=np.array(of_job, dtype=np.int64),
        locality=np.array([[1.0, 1.0, 0.9, 0.8], [1.0, 0.9, 0.25, 0.125]]),
        bytes_per_step=np.array([1e8, 5e8]),
        compute_s=np.array([0.1, 0.2]),
        cpu_cores=np.array([1.0, 6.0]),
        pcie_gbyte_s=np.array([0.1, 2.0]),
    )
    nodes = state.nodes if racks is None else replace(state.nodes, rack=np.array(racks, dtype=np.int64))
    return replace(state, profiles=profiles, nodes=nodes)


def place(
    rule: PlacementRule | Callable[[ClusterState], PlacementRule], nodes: list[Node], job: Job, *others: Job
) -> dict[int, int] | None:
    """The placement of the job beside those that run."""
    state = cluster(nodes, [*others, job])
    placing = rule if isinstance(rule, PlacementRule) else rule(state)
    placement = placing.place(Capacity(state), len(others))
    return None if placement is None else dict(placement.items())


def order(policy: Policy, jobs: list[Job], nodes: list[Node] | None = None) -> tuple[int, ...]:
    """Waiting jobs in the order in which they are considered."""
    return policy.decide(cluster(nodes or [Node(gpus=8)], jobs)).queue


def started(policy: Policy, nodes: list[Node], jobs: list[Job]) -> set[int]:
    return set(policy.decide(cluster(nodes, jobs)).allocation)


BUSY = Job(gpus=17, occupied={0: 6, 1: 4, 2: 7})
"""Leaves 2, 4 and 1 of three nodes of 8."""


class TestPlacing:
    @pytest.mark.parametrize(
        ("gpus", "packing", "first_fit"),
        [
            (1, {2: 1}, {0: 1}),
            (2, {0: 2}, {0: 2}),
            (3, {1: 3}, {0: 2, 1: 1}),
            (5, {1: 4, 2: 1}, {0: 2, 1: 3}),  # the freest, then the best fit for what is left
            (6, {1: 4, 0: 2}, {0: 2, 1: 4}),
            (7, {1: 4, 0: 2, 2: 1}, {0: 2, 1: 4, 2: 1}),
            (8, None, None),
        ],
    )
    def test_packing_and_first_fit(
        self, gpus: int, packing: dict[int, int] | None, first_fit: dict[int, int] | None
    ) -> None:
        assert place(PACKING, [Node()] * 3, Job(gpus=gpus), BUSY) == packing
        assert place(FIRST_FIT, [Node()] * 3, Job(gpus=gpus), BUSY) == first_fit

    def test_ties_go_to_the_lowest_index(self) -> None:
        assert place(PACKING, [Node()] * 3, Job(gpus=11)) == {0: 8, 1: 3}
        assert place(least_load, [Node()] * 3, Job(gpus=4)) == {0: 2, 1: 1, 2: 1}

    def test_least_load_adds_all_resources(self) -> None:
        # n0: 4/8 of GPUs and 8/8 of CPUs in use, load 1.5. n1: 6/8 of GPUs, and no CPUs, 0.75. One worker adds 1/8.
        nodes = [Node(gpus=8, cpus=8), Node(gpus=8)]
        busy = (Job(gpus=4, occupied={0: 4}, cpus_per_gpu=2), Job(gpus=6, occupied={1: 6}))
        assert place(least_load, nodes, Job(gpus=2), *busy) == {1: 2}
        assert place(least_load, nodes, Job(gpus=4), *busy) == {0: 2, 1: 2}

    def test_bin_packing_prefers_loaded_nodes_and_few_of_them(self) -> None:
        # Both have 4 GPUs free; CPUs of n1 are in use.
        nodes = [Node(gpus=8, cpus=8), Node(gpus=8, cpus=8)]
        busy = (Job(gpus=4, occupied={0: 4}), Job(gpus=4, occupied={1: 4}, cpus_per_gpu=1))
        assert place(bin_packing, nodes, Job(gpus=2), *busy) == {1: 2}
        assert place(bin_packing, nodes, Job(gpus=6), *busy) == {1: 4, 0: 2}
        assert place(bin_packing, [Node()] * 3, Job(gpus=6), BUSY) == {1: 4, 0: 2}

    @pytest.mark.parametrize("placing", [PACKING, FIRST_FIT, bin_packing, least_load])
    def test_jobs_that_a_rule_cannot_place_are_consolidated(
        self, placing: PlacementRule | Callable[[ClusterState], PlacementRule]
    ) -> None:
        assert place(placing, [Node()] * 3, Job(gpus=2, min_nodes=2), BUSY) == {0: 1, 2: 1}
        assert place(placing, [Node()] * 3, Job(gpus=7, max_nodes=2), BUSY) is None


class TestSched2:
    jobs = (Job(gpus=8, estimate_s=10), Job(gpus=1, estimate_s=30), Job(gpus=2, estimate_s=20), Job(gpus=1))

    def test_jobs_are_started_in_the_order_of_the_policy(self) -> None:
        jobs = list(self.jobs)
        assert order(Sched2Sif(), jobs) == (0, 2, 1, 3)
        assert order(Sched2Lrf(), jobs) == (1, 3, 2, 0)
        assert order(Sched2Spf(), jobs) == (1, 2, 0, 3)
        assert order(Sched2Fifo(), jobs) == (0, 1, 2, 3)

    def test_fifo_is_strict_and_the_others_pass_what_does_not_fit(self) -> None:
        jobs = [Job(gpus=9, estimate_s=1), Job(gpus=1, estimate_s=2)]
        assert started(Sched2Fifo(), [Node(gpus=8)], jobs) == set()
        assert started(Sched2Sif(), [Node(gpus=8)], jobs) == {1}

    def test_a_window_hides_later_jobs_until_one_before_them_starts(self) -> None:
        jobs = [Job(gpus=4, estimate_s=9), Job(gpus=4, estimate_s=8), Job(gpus=4, estimate_s=1)]
        assert started(Sched2Sif(), [Node(gpus=4)], jobs) == {2}
        assert started(Sched2Sif(window=2), [Node(gpus=4)], jobs) == {1}
        assert started(Sched2Sif(window=2), [Node(gpus=8)], jobs) == {1, 2}

    def test_saf_sorts_by_the_run_time_at_the_placement_of_a_job(self) -> None:
        # 4 GPUs are free as 2 + 2 in one rack: "slow" takes 4 times as long there, "fast" 1/0.9.
        busy = Job(gpus=4, occupied={0: 2, 1: 2})
        jobs = [busy, Job(gpus=4, estimate_s=10), Job(gpus=4, estimate_s=30)]
        state = cluster([Node(gpus=4)] * 2, jobs)
        assert Sched2Sif().decide(state).allocation.keys() == {0, 1}
        assert Sched2Saf().decide(profiled(state, [-1, SLOW, FAST])).allocation.keys() == {0, 2}
        assert Sched2Saf().decide(profiled(state, [-1, SLOW, SLOW])).allocation.keys() == {0, 1}
        assert Sched2Saf().decide(state).allocation.keys() == {0, 1}  # nothing was measured

    def test_saf_compares_a_placement_across_racks_with_the_best_one(self) -> None:
        # 10 GPUs never fit on one node: two nodes of one rack are the best that they can have, and cost them nothing.
        state = cluster([Node(gpus=8)] * 4, [Job(gpus=10, estimate_s=10), Job(gpus=8, estimate_s=11)])
        assert Sched2Saf().decide(profiled(state, [SLOW, FAST], [0, 0, 1, 1])).queue == (0, 1)
        # In racks of one node, nothing is better than several racks. With n1 gone, n0 and n2 are in two racks: 0.25 to 0.125.
        assert Sched2Saf().decide(profiled(state, [SLOW, FAST], [0, 1, 2, 3])).queue == (0, 1)
        gone = cluster(
            [Node(gpus=8)] * 4, [Job(gpus=8, occupied={1: 8}), Job(gpus=10, estimate_s=10), Job(gpus=8, estimate_s=11)]
        )
        assert Sched2Saf().decide(profiled(gone, [-1, SLOW, FAST], [0, 0, 1, 2])).queue == (2, 1)

    def test_dsif_delays_a_job_three_times(self) -> None:
        busy = Job(gpus=4, occupied={0: 2, 1: 2})
        state = cluster([Node(gpus=4)] * 2, [busy, Job(gpus=4, estimate_s=10), Job(gpus=1, estimate_s=99)])
        policy = Sched2Dsif()
        for delay in (1, 2, 3):
            now = replace(state, time_s=1000.0 + delay)
            assert policy.decide(now) == policy.decide(now)  # asked twice about one instant, it counts once
            assert policy.decide(now).allocation.keys() == {0, 2}
            assert f"delay {delay} of at most 3" in policy.decide(now).reasons[1]
        assert policy.decide(replace(state, time_s=1004.0)).allocation.keys() == {0, 1}
        # Back in time (another run, or a fork), it knows only what had been by then.
        assert policy.decide(replace(state, time_s=1002.0)).allocation.keys() == {0, 2}
        assert "delay 3 of at most 3" in policy.decide(replace(state, time_s=1003.0)).reasons[1]

    def test_dsif_does_not_delay_a_job_at_its_best_locality(self) -> None:
        jobs = [Job(gpus=6, estimate_s=10), Job(gpus=2, estimate_s=20)]
        assert started(Sched2Dsif(), [Node(gpus=4)] * 2, jobs) == {0, 1}
        assert started(
            Sched2Dsif(max_delays=0), [Node(gpus=4)] * 2, [Job(gpus=4, occupied={0: 2, 1: 2}), Job(gpus=4)]
        ) == {
            0,
            1,
        }


class TestDl2:
    def test_drf_between_jobs_sorts_by_the_requested_dominant_share(self) -> None:
        # Of 8 GPUs and 16 CPUs: 4/8, 2 x 6 / 16, 3/8.
        jobs = [Job(gpus=4, cpus_per_gpu=1), Job(gpus=2, cpus_per_gpu=6), Job(gpus=3, cpus_per_gpu=1)]
        assert order(Drf(), jobs, [Node(gpus=8, cpus=16)]) == (2, 0, 1)
        assert order(Drf(), jobs, [Node(gpus=8)]) == (1, 2, 0)  # CPUs do not limit

    def test_drf_between_users_sorts_by_the_dominant_share_that_a_user_occupies(self) -> None:
        jobs = [Job(gpus=4, occupied={0: 4}), Job(gpus=2), Job(gpus=2), Job(gpus=1), Job(gpus=2)]
        state = cluster([Node(gpus=8)], jobs)
        state = replace(state, jobs=replace(state.jobs, users=("ada", "bob"), user=np.array([0, 0, 1, 1, 1])))
        # Bob holds less until he has three; ada and he then hold 4 and 3, and he is next again, but 2 do not fit.
        assert Drf(between="users").decide(state).allocation.keys() == {0, 2, 3}

    def test_tetris_weighs_alignment_and_remaining_time(self) -> None:
        jobs = [Job(gpus=1, estimate_s=10), Job(gpus=4, estimate_s=10), Job(gpus=4, estimate_s=90), Job(gpus=1)]
        assert order(Tetris(), jobs) == (1, 0, 2, 3)
        assert order(Tetris(time_weight=0), jobs) == (1, 2, 0, 3)

    def test_tetris_aligns_demands_with_free_resources(self) -> None:
        # With all CPUs free the job of many CPUs aligns best; with nearly all in use, that of many GPUs.
        many_gpus, many_cpus = Job(gpus=3, cpus_per_gpu=0), Job(gpus=2, cpus_per_gpu=8)
        hogs = [Job(gpus=1, occupied={0: 1}, cpus_per_gpu=14), Job(gpus=1, occupied={1: 1}, cpus_per_gpu=32)]
        nodes = [Node(gpus=8, cpus=16), Node(gpus=8, cpus=32)]
        assert order(Tetris(time_weight=0), [many_gpus, many_cpus], nodes) == (1, 0)
        assert order(Tetris(time_weight=0), [many_gpus, many_cpus, *hogs], nodes) == (0, 1)


class TestRlTaps:
    def test_tetris_picks_the_largest_that_fits_and_sjf_the_shortest(self) -> None:
        jobs = [Job(gpus=2, estimate_s=5), Job(gpus=9, estimate_s=1), Job(gpus=3, estimate_s=7)]
        assert started(RlTapsTetris(), [Node(gpus=4)], jobs) == {2}
        assert started(RlTapsSjf(), [Node(gpus=4)], jobs) == {0}

    def test_only_the_first_ten_jobs_have_slots(self) -> None:
        jobs = [*[Job(gpus=2, estimate_s=9)] * 10, Job(gpus=2, estimate_s=1)]
        assert started(RlTapsSjf(), [Node(gpus=2)], jobs) == {0}
        assert started(RlTapsSjf(), [Node(gpus=4)], jobs) == {0, 10}
        assert started(RlTapsSjf(slots=0), [Node(gpus=2)], jobs) == {10}

    def test_random_picks_from_the_slots(self) -> None:
        state = cluster([Node(gpus=1)], [Job()] * 12)
        first = {next(iter(RlTapsRandom(seed).decide(state).allocation)) for seed in range(200)}
        assert first == set(range(10))

    def test_jobs_take_the_first_gpus(self) -> None:
        decision = RlTapsSjf().decide(cluster([Node(gpus=4)] * 2, [Job(gpus=3), Job(gpus=4)]))
        assert dict(decision.allocation[1].items()) == {0: 1, 1: 3}


class TestMarl:
    def test_the_baselines_of_marl_differ_in_placement_only(self) -> None:
        # A worker of "slow" on n0; n1 has three of "fast"; n2 is empty.
        jobs = [Job(gpus=1, occupied={0: 1}), Job(gpus=3, occupied={1: 3}), Job(gpus=1)]
        state = profiled(cluster([Node(gpus=4)] * 3, jobs), [SLOW, FAST, FAST])
        where = {policy: policy().decide(state).allocation[2].nodes for policy in (MarlTetris, MarlLb, MarlLif)}
        assert where == {MarlTetris: (1,), MarlLb: (2,), MarlLif: (2,)}
        full = profiled(cluster([Node(gpus=4)] * 2, jobs), [SLOW, FAST, FAST])
        assert MarlLb().decide(full).allocation[2].nodes == (0,)
        assert MarlLif().decide(full).allocation[2].nodes == (
            1,
        )  # three jobs that use little are better than one that uses much

    def test_lif_counts_the_jobs_that_it_has_just_placed(self) -> None:
        state = profiled(cluster([Node(gpus=4)] * 2, [Job(gpus=1), Job(gpus=1), Job(gpus=2)]), [SLOW, SLOW, FAST])
        placed = MarlLif().decide(state).allocation
        assert [placed[row].nodes for row in (0, 1)] == [(0,), (1,)]

    def test_lif_without_profiles_uses_the_requested_cores(self) -> None:
        jobs = [
            Job(gpus=1, occupied={0: 1}, cpus_per_gpu=8),
            Job(gpus=1, occupied={1: 1}, cpus_per_gpu=1),
            Job(gpus=1, cpus_per_gpu=1),
        ]
        state = cluster([Node(gpus=4, cpus=32)] * 2, jobs)
        assert MarlLif().decide(state).allocation[2].nodes == (1,)

    def test_jobs_that_do_not_fit_are_passed(self) -> None:
        for policy in (MarlTetris, MarlLb, MarlLif):
            assert started(policy(), [Node(gpus=4)], [Job(gpus=5), Job(gpus=2)]) == {1}


class TestInterference:
    def test_a_job_alone_is_not_slowed_down(self) -> None:
        model = HostInterference(alpha3=0.1, beta2=0.5)
        assert model.slowdown(6, 1, 0, 0) == 0
        residents = Residents(profiled(cluster([Node()], [Job(gpus=4)]), [SLOW]), model)
        assert residents.score(0, 0, 4) == 0

    def test_one_neighbour_of_six_cores_costs_what_the_paper_says(self) -> None:
        # CPU's part of the 30 % of section II-C, and with the mean PCIe use of its models (0.455 GB/s) all of it.
        assert HostInterference().slowdown(6, 0, 6, 0) == pytest.approx(0.30 * 23.2 / (23.2 + 14.4), rel=0.01)
        assert HostInterference().slowdown(6, 0.455, 6, 0.455) == pytest.approx(0.30, rel=0.01)

    def test_every_worker_on_the_node_counts(self) -> None:
        state = profiled(cluster([Node()], [Job(gpus=2, occupied={0: 2}), Job(gpus=1)]), [FAST, SLOW])
        model = HostInterference(alpha1=1, alpha2=1, alpha3=0, beta1=10, beta2=0)
        # Two of fast beside 6 cores and 2 GB/s; one of slow beside 2 cores and 0.2 GB/s.
        expected = 2 * (math.exp(6) - 1 + 20) + (math.exp(2) - 1 + 2)
        assert Residents(state, model).score(0, 1, 1) == pytest.approx(expected)


@st.composite
def profiled_states(draw: st.DrawFn) -> ClusterState:
    state = draw(states())
    if draw(st.booleans()):
        return state
    models = draw(st.lists(st.integers(-1, 1), min_size=len(state.jobs), max_size=len(state.jobs)))
    racks = draw(st.lists(st.integers(0, 2), min_size=len(state.nodes), max_size=len(state.nodes)))
    return profiled(state, models, racks)


@pytest.mark.parametrize("make", POLICIES)
@settings(max_examples=30)
@given(state=profiled_states())
def test_every_decision_is_valid(make: Callable[[], Policy], state: ClusterState) -> None:
    policy = make()
    decision = policy.decide(state)
    check(state, decision, policy.spec)
    assert policy.decide(state) == decision


@pytest.mark.parametrize("make", POLICIES)
def test_without_jobs_a_decision_is_empty(make: Callable[[], Policy]) -> None:
    assert make().decide(cluster([], [])).allocation == {}
    assert make().decide(cluster([Node()], [])).allocation == {}
    assert make().decide(cluster([], [Job()])).allocation == {}


def test_profiles_count_in_the_digest_and_cross_the_wire() -> None:
    plain = cluster([Node()], [Job(), Job()])
    state = profiled(plain, [FAST, -1])
    assert len({state_digest(plain), state_digest(state), state_digest(profiled(plain, [SLOW, -1]))}) == 3
    assert state_digest(parse_state(serialize_state(state))) == state_digest(state)


def test_profiles_by_job() -> None:
    profiles = profiled(cluster([Node()], [Job(), Job()]), [SLOW, -1]).profiles
    assert profiles is not None
    assert profiles.per_job(profiles.cpu_cores)[0] == 6
    assert math.isnan(profiles.per_job(profiles.cpu_cores)[1])
    assert profiles.per_job(profiles.locality).shape == (2, 4)


def test_names_of_policies_are_those_of_their_specs() -> None:
    assert {load_policy(name).spec.name for name in policy_names()} == set(policy_names())
