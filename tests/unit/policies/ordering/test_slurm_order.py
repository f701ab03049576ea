"""Policies in Slurm's order: tier, then priority, then submission."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.api import Policy, load_policy, parse_policy
from policies.errors import PolicyError
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster

POLICIES = ("fifo", "fifo-skip", "backfill")


def state(priorities: list[float], tiers: list[int], *, gpus: int = 1) -> ClusterState:
    """Jobs of one GPU with these priorities and tiers on one node with so many GPUs."""
    seen = cluster([Node(gpus=gpus)], [Job(gpus=1) for _ in priorities])
    order = {"slurm_priority": np.array(priorities), "partition_tier": np.array(tiers, dtype=np.int64)}
    return replace(seen, jobs=replace(seen.jobs, **order))


@pytest.mark.parametrize("policy", POLICIES)
def test_tier_goes_before_priority_and_priority_before_submission(policy: str) -> None:
    seen = state([5.0, 9.0, np.nan, 9.0, 1.0, -3.0], [1, 1, 1, 1, 2, 1])
    assert list(load_policy(policy, {"order": "slurm"}).decide(seen).queue) == [4, 1, 3, 0, 5, 2]
    assert list(load_policy(policy).decide(seen).queue) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("policy", POLICIES)
def test_without_priorities_it_is_the_order_of_submission(policy: str) -> None:
    seen = cluster([Node(gpus=1)], [Job(gpus=1), Job(gpus=1)])
    assert load_policy(policy, {"order": "slurm"}).decide(seen).allocation.keys() == {0}


def test_the_first_by_priority_starts() -> None:
    assert load_policy("backfill", {"order": "slurm"}).decide(state([1.0, 2.0], [1, 1])).allocation.keys() == {1}


def test_another_order_is_refused() -> None:
    with pytest.raises(PolicyError, match="order is 'slurms'; give submission or slurm"):
        load_policy("backfill", {"order": "slurms"})


WAITING_ONLY = ("sjf", "fewest-gpus")
PREEMPTING = ("srtf", "srsf", "las", "las:first_level_gpu_s=100", "tiresias", "srtf-count", "las-count")


def by_tier(name: str) -> Policy:
    """Return that policy with the tier first."""
    policy, options = parse_policy(name)
    return load_policy(policy, {**options, "order": "tier"})


def mixed(*, known: bool = True) -> ClusterState:
    """Jobs on one GPU in two tiers, of which each policy has the second and the third before the others of their tiers."""
    jobs = [
        Job(gpus=2, estimate_s=90.0, attained_gpu_s=5000.0),
        Job(gpus=1, estimate_s=50.0),
        Job(gpus=1, estimate_s=70.0, attained_gpu_s=150.0),
        Job(gpus=2, estimate_s=95.0, attained_gpu_s=9000.0),
    ]
    seen = cluster([Node(gpus=1)], jobs)
    tiers = np.array([1, 1, 3, 3]) if known else None
    return replace(seen, jobs=replace(seen.jobs, partition_tier=tiers))


@pytest.mark.parametrize("policy", [*WAITING_ONLY, *PREEMPTING])
def test_the_tier_goes_first_and_the_policys_own_order_counts_within_it(policy: str) -> None:
    assert list(by_tier(policy).decide(mixed()).queue) == [2, 3, 1, 0]
    own = load_policy(*parse_policy(policy)).decide(mixed())
    assert own.queue[0] == 1
    assert by_tier(policy).decide(mixed(known=False)) == own


@pytest.mark.parametrize("policy", PREEMPTING)
def test_a_job_of_a_higher_tier_gets_the_place_of_others_and_keeps_it(policy: str) -> None:
    jobs = [Job(estimate_s=10.0, occupied={0: 1}), Job(estimate_s=900.0, attained_gpu_s=9000.0)]
    seen = cluster([Node(gpus=1)], jobs)

    def with_tiers(*tiers: int) -> ClusterState:
        return replace(seen, jobs=replace(seen.jobs, partition_tier=np.array(tiers)))

    assert by_tier(policy).decide(with_tiers(1, 2)).allocation.keys() == {1}
    assert by_tier(policy).decide(with_tiers(2, 1)).allocation.keys() == {0}
    assert by_tier(policy).decide(with_tiers(1, 1)).allocation.keys() == {0}


@pytest.mark.parametrize("policy", [*WAITING_ONLY, *PREEMPTING])
def test_slurms_whole_order_is_refused_where_a_policy_has_its_own(policy: str) -> None:
    name, options = parse_policy(policy)
    with pytest.raises(PolicyError, match="order is 'slurm'; give own or tier"):
        load_policy(name, {**options, "order": "slurm"})
