"""Policies in Slurm's order: tier, then priority, then submission."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.api import load_policy
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
