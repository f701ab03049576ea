"""Federated training: copies of one network, whose gradients are applied to it one after the other."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.learned.algorithms.actor_critic import ActorCriticSettings
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.reinforcement.clusters import Cluster
from policies.learned.dl2.state_columns import StateColumns
from tests.unit.policies.learned.dl2.test_system import RECIPE, learned, rows_of

COLUMNS = StateColumns(3, 8)
ROWS = 16


def rows(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shape = (ROWS, *COLUMNS.shape)
    return {
        "seen": draw.random(shape, dtype=np.float32),
        "next_seen": draw.random(shape, dtype=np.float32),
        "actions": draw.integers(COLUMNS.actions, size=ROWS),
        "masks": np.ones((ROWS, COLUMNS.actions), dtype=np.bool_),
        "rewards": draw.random(ROWS, dtype=np.float32),
        "terminated": np.zeros(ROWS, dtype=np.bool_),
    }


def clusters_of(shared: DL2Network, count: int) -> list[Cluster]:
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.1)
    settings = ActorCriticSettings(max_grad_norm=1e9)
    return [
        Cluster(
            shared, optimizer, settings, torch.Generator(), PrioritizedReplay(8, seed=0, anneal=1), is_alone=count == 1
        )
        for _ in range(count)
    ]


def weights_of(network: DL2Network) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in network.parameters()])


def step_from(begin: DL2Network, seed: int) -> torch.Tensor:
    """Return by how much a cluster that is alone changes these weights."""
    network = copy.deepcopy(begin)
    clusters_of(network, 1)[0].algorithm.update_on(rows(seed))
    return weights_of(network) - weights_of(begin)


def test_a_gradient_is_taken_at_the_copys_weights_and_applied_to_the_shared_ones() -> None:
    torch.manual_seed(1)
    shared = DL2Network(COLUMNS, 8, 1)
    begin = copy.deepcopy(shared)
    first, second = clusters_of(shared, 2)

    first.algorithm.update_on(rows(1))
    assert torch.equal(weights_of(first.network), weights_of(begin)), "a copy changes only when it is synchronized"
    second.algorithm.update_on(rows(2))

    late = weights_of(begin) + step_from(begin, 1) + step_from(begin, 2)
    torch.testing.assert_close(weights_of(shared), late)
    first.synchronize()
    assert torch.equal(weights_of(first.network), weights_of(shared))
    assert torch.equal(weights_of(second.network), weights_of(begin))


def test_a_cluster_that_is_alone_learns_on_the_shared_network() -> None:
    shared = DL2Network(COLUMNS, 8, 1)
    (alone,) = clusters_of(shared, 1)
    assert alone.network is shared


def test_the_value_network_can_learn_alone() -> None:
    shared = DL2Network(COLUMNS, 8, 1)
    before = copy.deepcopy(shared)
    first, _ = clusters_of(shared, 2)
    first.train_actor(False)
    first.algorithm.update_on(rows(1))
    assert all(map(torch.equal, shared.actor.parameters(), before.actor.parameters()))
    assert not all(map(torch.equal, shared.critic.parameters(), before.critic.parameters()))


@pytest.mark.parametrize("replay", [True, False])
def test_after_a_round_the_network_has_learned_from_every_cluster(replay: bool) -> None:
    learning, network, before = learned(replace(RECIPE, clusters=2, replay=replay))
    first, second = learning.clusters
    assert first.network is not second.network
    assert any(not each.equal(before[name]) for name, each in network.state_dict().items())
    # The cluster whose slot has ended last has what all have learned; the other one lacks its step.
    latest = weights_of(network)
    assert any(torch.equal(weights_of(each.network), latest) for each in learning.clusters)
    if replay:
        assert not np.array_equal(rows_of(learning, 0)["seen"][:10], rows_of(learning, 1)["seen"][:10])
    learning._begin(critic_only=False, number=1)
    assert all(torch.equal(weights_of(each.network), latest) for each in learning.clusters)
