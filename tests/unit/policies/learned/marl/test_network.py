"""MARL's networks: the convolution by its formula, whose weights learn, and a control that learning finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from policies.errors import TrainingError
from policies.learned.algorithms.distribution import Categorical
from policies.learned.marl.convolution import EdgeConvolution
from policies.learned.marl.graphs import Graph
from policies.learned.marl.learning import END, Learner, following
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.recipe import Recipe
from simulator.papers.marl.env import MarlEnv

SMALL: dict[str, Any] = {"k": 4, "intervals": 2, "jobs_per_interval": 40.0}
NARROW: dict[str, Any] = {"width": 8, "encoded": 16, "hidden": 16}


def test_the_convolution_is_that_of_the_paper_edge_by_edge() -> None:
    ends = np.array([[0, 1], [1, 2], [0, 3]])
    graph = Graph(5, ends, np.zeros((3, 2), dtype=np.float32))
    torch.manual_seed(0)
    layer = EdgeConvolution(graph, 4, 6)
    with torch.no_grad():
        layer.bias.normal_()
    nodes, edges = torch.randn(2, 5, 4), torch.rand(2, 3, 3)
    base, *of_features = torch.split(layer.neighbours.weight, 4, 1)
    expected = torch.zeros(2, 5, 6)
    for batch in range(2):
        for node in range(5):
            near = torch.zeros(6)
            neighbours = [(edge, set(pair) - {node}) for edge, pair in enumerate(ends.tolist()) if node in pair]
            for edge, (other,) in neighbours:
                theta = base + sum(edges[batch, edge, f] * of_features[f] for f in range(3))
                near = near + theta @ nodes[batch, other]
            near = near / max(len(neighbours), 1) + layer.bias
            expected[batch, node] = torch.relu(layer.update(torch.cat([nodes[batch, node], near])))
    assert torch.allclose(layer(nodes, edges), expected, atol=1e-5)


def made(env: MarlEnv, **options: Any) -> tuple[MarlNetwork, dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    seen, _ = env.reset(seed=0)
    state = {name: torch.from_numpy(np.stack([cells, cells])) for name, cells in seen.items()}
    return MarlNetwork(env.layout, Recipe(**{**NARROW, **options})), state


def test_a_decision_depends_on_what_others_send_and_teaches_only_its_scheduler() -> None:
    env = MarlEnv(**SMALL)
    network, state = made(env)
    assert len(network.of) == 4
    own = int(state["scheduler"][0].argmax())
    logits, values = network(state)
    assert logits.shape == (2, env.layout.actions) and values.shape == (2,)
    (logits.square().sum() + values.sum()).backward()
    learns = {
        name.split(".")[1] for name, each in network.named_parameters() if each.grad is not None and each.grad.any()
    }
    assert learns == {str(own)}
    changed = dict(state)
    changed["groups"] = state["groups"].clone()
    changed["groups"][:, (own + 1) % 4] = 0.0
    with torch.no_grad():
        assert not torch.equal(network(changed)[0], logits)


def test_shared_weights_are_one_network() -> None:
    env = MarlEnv(**SMALL)
    network, state = made(env, shared=True)
    assert len(network.of) == 1
    mixed = {name: cells.clone() for name, cells in state.items()}
    mixed["scheduler"] = torch.eye(4)[:2]
    both = network(mixed)[0]
    for row in range(2):
        alone = network({name: cells[row : row + 1] for name, cells in mixed.items()})[0]
        assert torch.allclose(both[row], alone[0], atol=1e-6)


def test_rows_of_several_schedulers_are_those_of_each_alone() -> None:
    network, state = made(MarlEnv(**SMALL))
    mixed = {**state, "scheduler": torch.eye(4)[:2]}
    both, values = network(mixed)
    for row in range(2):
        alone, value = network({name: cells[row : row + 1] for name, cells in mixed.items()})
        assert torch.allclose(both[row], alone[0], atol=1e-6)
        assert torch.allclose(values[row], value[0], atol=1e-6)


def test_a_decision_is_followed_by_the_next_of_its_scheduler() -> None:
    assert following([0, 0, 1, 0, 1]).tolist() == [1, 3, 4, END, END]


def test_episodes_have_a_reward_for_each_decision() -> None:
    env = MarlEnv(**SMALL)
    network, _ = made(env)
    optimizer = torch.optim.Adam(network.parameters())
    learner = Learner(network, optimizer, Recipe(**NARROW), torch.Generator().manual_seed(0))
    found = learner.play(env, 3)
    assert len(found.rewards) == len(found.actions) == len(found.masks) == len(found.states["task"])
    assert (found.rewards > 0).any() and (found.rewards <= 1).all()
    assert found.masks[np.arange(len(found.actions)), found.actions].all()
    assert found.outcome["finished"] == found.outcome["jobs"]
    assert set(learner.update([found, learner.play(env, 4)])) == {"policy_loss", "value_loss", "entropy"}


def test_equal_seeds_give_equal_weights() -> None:
    weights = []
    for _ in range(2):
        env = MarlEnv(**SMALL)
        network, _ = made(env)
        optimizer = torch.optim.Adam(network.parameters(), 1e-3)
        learner = Learner(network, optimizer, Recipe(**NARROW), torch.Generator().manual_seed(0))
        learner.update([learner.play(env, 3)])
        weights.append(torch.cat([each.detach().flatten() for each in network.parameters()]))
    assert torch.equal(*weights)


def test_learning_prefers_actions_with_more_reward() -> None:
    """Reward 1 for the first possible action, 0 for others."""
    env = MarlEnv(**SMALL)
    network, _ = made(env, shared=True)
    recipe = Recipe(**NARROW, shared=True, gamma=0.0)
    learner = Learner(network, torch.optim.Adam(network.parameters(), 1e-2), recipe, torch.Generator().manual_seed(0))
    played = learner.play(env, 0)
    first = played.masks.argmax(1)
    played.rewards[:] = played.actions == first
    states = {name: torch.from_numpy(cells) for name, cells in played.states.items()}

    def chance() -> float:
        with torch.no_grad():
            distribution = Categorical(network(states)[0], torch.from_numpy(played.masks))
            return float(distribution.log_prob(torch.from_numpy(first)).exp().mean())

    before = chance()
    for _ in range(15):
        learner.update([played])
    assert before < 0.4
    assert chance() > 1.5 * before


@pytest.mark.parametrize("options", [{"width": 0}, {"gamma": 1.5}, {"entropy_weight": -1.0}, {"batch": 0}])
def test_impossible_recipes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TrainingError):
        Recipe(**options)
