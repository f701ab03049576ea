"""The Q-network and its features: by hand, and what renumbering changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.learned.algorithms.distribution import IMPOSSIBLE
from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.networks import FeatureNetwork, PaperNetwork
from policies.learned.sched2.networks import network_of as network_by
from policies.learned.sched2.state.feature_columns import (
    IS_SPREAD,
    OF_JOB,
    SIZES,
    FeatureColumns,
)
from policies.learned.sched2.state.features import Features
from policies.learned.sched2.state.first_rule import first_rule
from policies.learned.sched2.training.demonstrations import actions_of
from simulator.papers.sched2.env import Sched2Env
from simulator.traces.generators.sched2 import Sched2 as Workload
from tests.unit.policies.learned.sched2.agents import FEW, SMALL, candidates_of, network_of, rule_actions
from tests.unit.simulator.papers.sched2.test_env import random_agent


def moments(
    env: Sched2Env, most: int = 150
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float32]], np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
    """States and masks along an episode of random actions."""
    states, masks, agent = [], [], random_agent(3)
    seen, _ = env.reset(seed=1)
    for _ in range(most):
        states.append(seen)
        masks.append(env.action_masks())
        seen, _, over, _, _ = env.step(np.int64(agent(env)))
        if over:
            break
    return np.array(states), np.array(masks)


def test_masked_actions_have_no_value_and_all_others_have_one() -> None:
    states, masks = moments(Sched2Env(traces=FEW, cluster="4x4", candidates=4))
    with torch.inference_mode():
        worth = network_of(SMALL)(torch.from_numpy(states), torch.from_numpy(masks)).numpy()
    assert (worth[~masks] == IMPOSSIBLE).all()
    assert np.isfinite(worth[masks]).all()
    assert np.abs(worth[masks]).max() < 1e4


def test_single_states_give_the_values_of_a_batch() -> None:
    states, masks = moments(Sched2Env(traces=FEW, cluster="4x4", candidates=4))
    network = network_of(SMALL)
    with torch.inference_mode():
        together = network(torch.from_numpy(states), torch.from_numpy(masks))
        alone = torch.cat(
            [network(torch.from_numpy(states[i : i + 1]), torch.from_numpy(masks[i : i + 1])) for i in range(9)]
        )
    assert torch.allclose(together[:9], alone, rtol=1e-4, atol=1e-4)


def test_permuted_jobs_permute_their_values_and_permuted_full_servers_change_nothing() -> None:
    states, masks = moments(Sched2Env(traces=FEW, cluster="4x4", candidates=4))
    network, columns = network_of(SMALL), SMALL.columns
    gpus, jobs, _ = columns.split(states)
    order = np.array([2, 0, 3, 1])
    swapped, swapped_masks = states.copy(), masks.copy()
    columns.split(swapped)[1][:] = jobs[:, order]
    swapped_masks[:, 1:] = masks[:, 1:][:, order]
    with torch.inference_mode():
        worth = network(torch.from_numpy(states), torch.from_numpy(masks)).numpy()
        other = network(torch.from_numpy(swapped), torch.from_numpy(swapped_masks)).numpy()
    assert np.allclose(other[:, 0], worth[:, 0], atol=1e-4)
    assert np.allclose(other[:, 1:], worth[:, 1:][:, order], atol=1e-4)
    turned = states.copy()
    columns.split(turned)[0][:] = gpus[:, ::-1]
    # Where every server has another number of free GPUs, packing has no ties to break.
    clear = np.array([len(set((row == 0).sum(1).tolist())) == 4 for row in gpus])
    with torch.inference_mode():
        third = network(torch.from_numpy(turned), torch.from_numpy(masks)).numpy()
    assert clear.any()
    assert np.allclose(third[clear], worth[clear], atol=1e-4)


def test_a_rule_acts_alike_on_single_states_and_on_batches() -> None:
    states, masks = moments(Sched2Env(traces=FEW, cluster="4x4", candidates=4))
    rng, seen = np.random.default_rng(2), set()
    look = Features(SMALL.columns)
    _, own, _, _ = FeatureColumns(SMALL.columns).split(torch.from_numpy(look.rows(states)))
    for _ in range(5):
        rule = first_rule() + 2.0 * rng.standard_normal(OF_JOB)
        together = rule_actions(np.repeat(rule[None], len(states), axis=0), own.numpy(), masks).tolist()
        alone = [look.action(rule, state, mask.view(np.uint8)) for state, mask in zip(states, masks, strict=True)]
        assert alone == together
        seen.update(alone)
    assert seen == {0, 1, 2, 3, 4}


def test_packing_shows_where_a_job_goes_and_whether_it_would_be_scattered() -> None:
    env, columns = Sched2Env(traces=Workload(jobs=200, mean_gap_s=80.0), cluster="15x8"), Encoding().columns
    agent, spread, over = random_agent(4), 0, False
    seen, _ = env.reset(seed=5)
    while not over:
        own, first = candidates_of(columns, seen)
        action = agent(env)
        job = env.candidates[action - 1] if action else None
        seen, _, over, _, _ = env.step(np.int64(action))
        if job is not None and job.occupied:
            is_spread = bool(own[action - 1, IS_SPREAD])
            assert is_spread == (job.gpus <= 8 and len(job.nodes) > 1)
            assert int(first[action - 1]) in job.nodes
            spread += is_spread
    assert spread > 5


def test_an_untrained_network_starts_as_its_rule() -> None:
    states, masks = moments(Sched2Env(traces=FEW, cluster="4x4", candidates=4))
    rule = first_rule()
    rule[-SIZES:] = 0.0
    network = FeatureNetwork(SMALL.columns)
    with torch.no_grad():
        network.rule.weight.copy_(torch.from_numpy(rule[None]))
        worth = network(torch.from_numpy(states), torch.from_numpy(masks)).numpy()
        _, own, _, _ = network.shape.split(network.features(torch.from_numpy(states)))
    found = rule_actions(np.repeat(rule[None], len(states), axis=0), own.numpy(), masks)
    assert worth.argmax(1).tolist() == found.tolist()
    assert 0 in found.tolist()


def test_the_papers_network_by_equations_3_to_5() -> None:
    states, masks = moments(Sched2Env(traces=FEW, cluster="4x4", candidates=4))
    network = PaperNetwork(SMALL.columns, hidden=5, server=3)
    weights = {name: weight.detach().numpy() for name, weight in network.named_parameters()}

    def layer(name: str, seen: np.ndarray) -> np.ndarray:
        made: np.ndarray = seen @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return made

    for state, mask in zip(states[:20], masks[:20], strict=True):
        gpus, jobs, rest = SMALL.columns.split(state)
        servers = [np.maximum(layer("server", row), 0) for row in gpus]  # F_i, with shared weights
        queue = np.maximum(layer("queue", np.concatenate([jobs.ravel(), rest])), 0)  # G
        embedding = np.concatenate([*servers, queue])  # E
        worth = layer("action", np.maximum(layer("embedding", embedding), 0))
        with torch.inference_mode():
            found = network(torch.from_numpy(state[None]), torch.from_numpy(mask[None]))[0].numpy()
        assert found[mask] == pytest.approx(worth[mask], abs=1e-5)
        assert (found[~mask] == IMPOSSIBLE).all()


def test_the_card_names_the_network() -> None:
    sizes = {"hidden": 8, "server": 4}
    assert isinstance(network_by({"network": "paper", **sizes}, SMALL.columns), PaperNetwork)
    assert isinstance(network_by({"network": "features", **sizes}, SMALL.columns), FeatureNetwork)
    assert isinstance(network_by(sizes, SMALL.columns), FeatureNetwork), "cards from before there were two"
    with pytest.raises(ValueError, match="network is 'other'; give paper or features"):
        network_by({"network": "other", **sizes}, SMALL.columns)


def test_the_simple_rules_start_jobs_that_lose_nothing() -> None:
    columns = Encoding(num_nodes=2, gpus_per_node=4, candidates=3).columns
    state = np.zeros((4, columns.size), dtype=np.float32)
    gpus, jobs, _ = columns.split(state)
    gpus[:] = [[0, 0, 3, 3], [0, 2, 3, 5]]
    # Three GPUs in an hour, scattered now and slower; two in two hours; one in three.
    jobs[:] = [[1, 4, 4, 4, 3 / 4, 0], [2, 8, 8, 8, 2 / 4, 0], [3, 3, 3, 3, 1 / 4, 0]]
    masks = np.ones((4, 4), dtype=np.bool_)
    masks[1, 2] = False
    masks[2, 2:] = False
    masks[3] = [False, True, False, False]
    assert actions_of("local-sif", columns, state, masks).tolist() == [2, 3, 0, 1]
    assert actions_of("local-spf", columns, state, masks).tolist() == [3, 3, 0, 1]
