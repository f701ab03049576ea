"""MARL's networks: the convolution by its formula, whose weights learn, and sizes of data centers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from policies.learned.marl.convolution import EdgeConvolution
from policies.learned.marl.graphs import Graph
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.recipe import PAPER, SCORES, Recipe
from simulator.papers.marl.env import MarlEnv

SMALL: dict[str, Any] = {"k": 4, "intervals": 2, "jobs_per_interval": 40.0}
NARROW: dict[str, Any] = {"network": PAPER, "shared": False, "width": 8, "encoded": 16, "hidden": 16}
SCORING: dict[str, Any] = {"network": SCORES, "shared": True}


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


def test_scores_depend_on_no_order_of_groups_and_on_no_size() -> None:
    env = MarlEnv(**SMALL, shows="types")
    network, state = made(env, **SCORING)
    logits, _ = network(state)
    assert logits.shape == (2, env.layout.actions)
    empty = logits[0, : env.layout.groups]
    assert torch.allclose(empty, empty[0].expand_as(empty), atol=1e-6), "all groups are empty, and alike"
    larger = MarlEnv(k=6, intervals=1, shows="types")
    other, seen = made(larger, **SCORING)
    other.load_state_dict(network.state_dict())
    assert other(seen)[0].shape == (2, larger.layout.actions)


def test_a_score_depends_on_where_the_jobs_other_tasks_are() -> None:
    env = MarlEnv(**SMALL, shows="types")
    network, _ = made(env, **SCORING)
    env.step(np.int64(2))
    seen = env._observe()
    with torch.no_grad():
        logits = network({name: torch.from_numpy(cells[None]) for name, cells in seen.items()})[0][0]
    groups = logits[: env.layout.groups]
    assert not torch.allclose(groups[0], groups[2], atol=1e-6)
    assert torch.allclose(groups[6], groups[7], atol=1e-6)
