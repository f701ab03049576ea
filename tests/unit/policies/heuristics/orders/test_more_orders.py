"""Backfilling, remaining service, counted GPUs and random order, on small states; and that every decision is valid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from policies.api import Decision, load_policy
from policies.errors import PolicyLoadError
from policies.heuristics.orders.random_order import Random
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check

NAMES = ["backfill", "srsf", "srtf-count", "las-count", "random"]


def decide(name: str, nodes: list[Node], jobs: list[Job], **options: object) -> Decision:
    return load_policy(name, options).decide(cluster(nodes, jobs))


def started(name: str, nodes: list[Node], jobs: list[Job], **options: object) -> set[int]:
    return set(decide(name, nodes, jobs, **options).allocation)


class TestBackfill:
    """A job of 4 GPUs runs for 10 s more; the head of the queue needs all 8."""

    blocked = (Job(gpus=4, occupied={0: 4}, estimate_s=50, service_s=40), Job(gpus=8, estimate_s=99))

    def test_a_job_that_ends_before_the_head_can_start_passes_it(self) -> None:
        for estimate_s, passes in ((5, True), (10, True), (10.5, False)):
            jobs = [*self.blocked, Job(gpus=4, estimate_s=estimate_s)]
            assert (2 in started("backfill", [Node(gpus=8)], jobs)) == passes

    def test_a_job_that_leaves_enough_gpus_for_the_head_passes_it_however_long_it_runs(self) -> None:
        jobs = [*self.blocked, Job(gpus=2, estimate_s=1000), Job(gpus=3, estimate_s=1000)]
        assert started("backfill", [Node(gpus=8), Node(gpus=3)], jobs) == {0, 2}  # 2 on n1; then 3 fit on n0 only

    def test_jobs_that_pass_the_head_count_for_later_ones(self) -> None:
        # At T 8 and 4 are free, and the head needs 8 + 2: one job of 2 may stay beyond T, the next may not.
        running = Job(gpus=8, occupied={0: 8}, estimate_s=10)
        jobs = [running, Job(gpus=10, estimate_s=9), *[Job(gpus=2, estimate_s=1000)] * 2, Job(gpus=2, estimate_s=10)]
        assert started("backfill", [Node(gpus=8), Node(gpus=4)], jobs) == {0, 2, 4}

    def test_without_an_estimate_a_job_never_ends(self) -> None:
        jobs = [*self.blocked, Job(gpus=4)]
        assert started("backfill", [Node(gpus=8)], jobs) == {0}

    def test_a_head_without_a_known_start_time_delays_no_other_job(self) -> None:
        jobs = [Job(gpus=4, occupied={0: 4}), Job(gpus=8, estimate_s=9), Job(gpus=4, estimate_s=1000), Job(gpus=4)]
        decision = decide("backfill", [Node(gpus=8)], jobs)
        assert set(decision.allocation) == {0, 2}
        assert "when running jobs end" in decision.reasons[1]

    def test_a_head_that_waits_for_jobs_without_an_estimate_is_not_delayed_by_another_of_them(self) -> None:
        jobs = [Job(gpus=4, occupied={0: 4}), Job(gpus=8, estimate_s=9), Job(gpus=4), Job(gpus=2)]
        assert started("backfill", [Node(gpus=8)], jobs) == {0}
        assert started("backfill", [Node(gpus=8), Node(gpus=2)], jobs) == {0, 3}

    def test_a_head_that_fits_not_even_after_all_ends_delays_nobody(self) -> None:
        jobs = [Job(gpus=4, occupied={0: 4}), Job(gpus=16, estimate_s=9), Job(gpus=4)]
        decision = decide("backfill", [Node(gpus=8)], jobs)
        assert set(decision.allocation) == {0, 2}
        assert "nodes that are not available now" in decision.reasons[1]

    def test_jobs_that_have_just_started_count_as_running(self) -> None:
        # The first job starts and ends at 5; then the head fits. The third ends with it, the fourth does not.
        jobs = [Job(gpus=4, estimate_s=5), Job(gpus=8), Job(gpus=2, estimate_s=5), Job(gpus=2, estimate_s=6)]
        decision = decide("backfill", [Node(gpus=8)], jobs)
        assert set(decision.allocation) == {0, 2}
        assert "in 5 s" in decision.reasons[1]
        assert "backfilled" in decision.reasons[2]

    def test_ends_at_the_same_instant_are_equal_in_spite_of_rounding(self) -> None:
        # 0.1 + 0.2 of run time, 0.1 of it served, is more than 0.2 in floats.
        jobs = [Job(gpus=4, occupied={0: 4}, estimate_s=0.3, service_s=0.1), Job(gpus=8), Job(gpus=4, estimate_s=0.2)]
        assert 0.3 - 0.1 < 0.2
        assert started("backfill", [Node(gpus=8)], jobs) == {0, 2}

    def test_the_head_may_be_spread_over_nodes(self) -> None:
        # Consolidated, the head waits until 90; spread, until 10, and the last job would delay it.
        running = [Job(gpus=8, occupied={0: 4, 1: 4}, estimate_s=10), Job(gpus=2, occupied={0: 1, 1: 1}, estimate_s=90)]
        jobs = [*running, Job(gpus=12), Job(gpus=3, estimate_s=60)]
        assert started("backfill", [Node(gpus=8)] * 2, jobs) == {0, 1, 3}
        assert started("backfill", [Node(gpus=8)] * 2, jobs, layout="anywhere") == {0, 1}


def test_srsf_weighs_remaining_time_by_gpus() -> None:
    jobs = [Job(gpus=8, estimate_s=10), Job(gpus=2, estimate_s=30), Job(gpus=8, estimate_s=100, service_s=91)]
    assert decide("srsf", [Node()], jobs).queue == (1, 2, 0)
    running = [Job(gpus=8, occupied={0: 8}, estimate_s=10), Job(gpus=1, estimate_s=79), Job(gpus=1, estimate_s=81)]
    assert started("srsf", [Node()], running) == {1, 2}


def test_count_policies_look_only_at_the_number_of_gpus() -> None:
    jobs = [
        Job(gpus=4, occupied={0: 4}, estimate_s=1),
        Job(gpus=4, occupied={1: 4}, estimate_s=2),
        Job(gpus=8, estimate_s=9),
    ]
    assert started("srtf", [Node()] * 2, jobs) == {0, 1}
    decision = decide("srtf-count", [Node()] * 2, jobs)
    assert dict(decision.allocation[2].items()) == {0: 4, 1: 4}
    assert "spread: 8 GPUs on 2 nodes" in decision.reasons[2]


def test_count_policies_place_new_jobs_around_running_jobs_selected_after_them() -> None:
    jobs = [Job(gpus=4, occupied={0: 4}, attained_gpu_s=9), Job(gpus=8), Job(gpus=5, attained_gpu_s=10)]
    assert started("las-count", [Node()] * 2, jobs) == {0, 1}
    decision = decide("las-count", [Node()] * 2, jobs)
    assert dict(decision.allocation[1].items()) == {1: 8}


class TestRandom:
    def test_a_seed_determines_the_order_of_random(self) -> None:
        jobs = [Job()] * 6
        orders = {decide("random", [], jobs, seed=seed).queue for seed in range(50)}
        assert len(orders) > 40
        assert decide("random", [], jobs, seed=7) == decide("random", [], jobs, seed=7)

    def test_random_puts_every_job_first_equally_often(self) -> None:
        state = cluster([], [Job()] * 4)
        first = [Random(seed).decide(state).queue[0] for seed in range(2000)]
        assert all(400 < first.count(row) < 600 for row in range(4))  # 500 +- 5 standard deviations

    def test_new_jobs_do_not_change_the_order_of_the_others(self) -> None:
        few, many = (decide("random", [], [Job()] * count, seed=3).queue for count in (5, 12))
        assert [row for row in many if row < 5] == list(few)

    @pytest.mark.parametrize("seed", [1.5, "x", True, 1 << 63])
    def test_other_seeds_are_refused(self, seed: object) -> None:
        with pytest.raises(PolicyLoadError, match=r"seed is .* give a whole number"):
            load_policy("random", {"seed": seed})


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(state=states())
def test_every_decision_is_valid(name: str, state: ClusterState) -> None:
    policy = load_policy(name)
    decision = policy.decide(state)
    check(state, decision, policy.spec)
    assert policy.decide(state) == decision


@settings(max_examples=40)
@given(state=states())
def test_backfilling_with_scattered_jobs_is_valid(state: ClusterState) -> None:
    policy = load_policy("backfill", {"layout": "anywhere"})
    check(state, policy.decide(state), policy.spec)
