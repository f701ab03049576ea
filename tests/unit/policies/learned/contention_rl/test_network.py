"""The network: it treats equal nodes alike, distinguishes candidates, and never draws an impossible action."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from policies.learned.algorithms.distribution import masked_log_softmax
from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.spreads import node_lists, powers
from tests.unit.policies.learned.contention_rl.agents import network_of

KINDS = [
    Encoding(nodes=nodes, split=split, cells=cells)
    for nodes in ("lists", "rules")
    for split in ("even", "packed")
    for cells in ("scalar", "features")
]


@pytest.mark.parametrize("encoding", KINDS, ids=lambda each: f"{each.nodes}-{each.split}-{each.cells}")
def test_every_encoding_has_a_network_that_uses_all_of_its_cells(encoding: Encoding) -> None:
    network = network_of(encoding)
    seen = torch.rand(2, *encoding.shape, requires_grad=True)
    logits, values = network(seen)
    assert logits.shape == (2, encoding.actions)
    assert values.shape == (2,)
    (logits[0, 0] + values[0]).backward()
    assert seen.grad is not None
    looked = seen.grad[0].reshape(encoding.num_nodes, 2 * encoding.gpus_per_node, -1).abs().sum(2) > 0
    assert looked[:, : encoding.gpus_per_node].all()
    rows = len(powers(encoding.num_nodes)) if encoding.split == "even" else encoding.num_nodes
    assert looked[:rows, encoding.gpus_per_node :].all()
    assert not looked[rows:, encoding.gpus_per_node :].any()
    assert not seen.grad[1].any()


@pytest.mark.parametrize("order", list(permutations(range(4)))[1::5])
def test_another_number_of_nodes_only_changes_the_number_of_actions(order: tuple[int, ...]) -> None:
    encoding = Encoding(cells="features")
    network = network_of(encoding)
    seen = torch.rand(1, *encoding.shape)
    renumbered = seen.clone()
    renumbered[:, :, :8] = seen[:, list(order), :8]
    (logits, value), (others, other) = network(seen), network(renumbered)
    lists = node_lists(4, powers(4)).lists
    places = [lists.index(tuple(sorted(order[node] for node in nodes))) for nodes in lists]
    assert torch.allclose(other, value, atol=1e-6)
    assert torch.allclose(others[0, 0], logits[0, 0], atol=1e-5)
    there = others[0, 1:].reshape(3, -1)
    assert torch.allclose(there, logits[0, 1:].reshape(3, -1)[:, places], atol=1e-4)
    assert not torch.allclose(there, logits[0, 1:].reshape(3, -1), atol=1e-2)


def test_cells_of_a_candidate_influence_its_own_actions_most() -> None:
    encoding = Encoding(cells="features")
    network = network_of(encoding)
    seen = torch.zeros(1, *encoding.shape)
    seen[0, 0, 8 + 1] = torch.tensor([1.0, 0.1, 0.1, 0.1, 0.0])
    seen[0, 0, 8 + 3] = torch.tensor([1 - 1 / 3, 0.9, 0.9, 0.9, 0.0])
    own = network._own_cells(seen[:, :3, 8:]).reshape(3, 3, 8, 5)
    assert own[0].nonzero()[:, :2].unique(dim=0).tolist() == [[0, 1]]
    assert own[1].nonzero()[:, :2].unique(dim=0).tolist() == [[0, 3]]
    assert not own[2].any()


def test_what_is_masked_is_never_drawn() -> None:
    logits = torch.tensor([[50.0, 0.0, -50.0, 1.0]])
    chances = masked_log_softmax(logits, torch.tensor([[False, True, True, False]])).exp()
    assert chances.sum().item() == pytest.approx(1)
    assert chances[0, [0, 3]].tolist() == [0, 0]
    assert chances[0, 1].item() == pytest.approx(1)
