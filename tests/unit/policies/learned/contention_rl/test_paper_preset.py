"""The preset `paper`: the state, network, rounds and reward of the paper's agent, and a training that leaves weights that serve."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from policies.errors import EncoderError, TrainingError
from policies.learned.contention_rl.encoder import Encoder
from policies.learned.contention_rl.features import scalar
from policies.learned.contention_rl.network import PaperActorCritic, network_of
from policies.learned.contention_rl.policy import RlBase
from policies.learned.contention_rl.recipe import PAPER, PpoTrainer, Recipe, settings_of, train
from policies.learned.contention_rl.system import SYSTEM, agent, encoding_of, environments
from policies.learned.training.recipes import recipe_of
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SetupOverrides
from policies.learned.weights import weights
from simulator.papers.contention_rl.env import BRANCHES, ContentionEnv
from simulator.traces.generators.contention_rl import ContentionRL
from simulator.training.backend import SimulatorBackend, simulator_backend
from tests.unit.policies.learned.contention_rl.agents import card_of
from tests.unit.policies.learned.contention_rl.agents import environments as in_one_process
from tests.unit.policies.learned.contention_rl.test_system import WORLD
from tests.unit.policies.states.cluster import Job, Node, cluster

SMALL = replace(PAPER, envs=2, steps=16, batches=1, stages=3, validate_every=3)
JOBS = ContentionRL(jobs=12, demands=(1, 2, 4), cluster_gpus=8)
TOGETHER: dict[str, Any] = {"decide": PAPER.decide, "starts": PAPER.starts, "cells": PAPER.cells}


@pytest.fixture
def small() -> Any:
    made = simulator_backend(WORLD, SetupOverrides())
    yield made
    made.close()


def test_the_preset_is_the_papers_branch_b_with_the_settings_of_its_code() -> None:
    found = recipe_of(SYSTEM, ["preset=paper"])
    assert (found.branch, found.decide, found.cells, found.candidates, found.demands) == (
        "B",
        "rounds",
        "scalar",
        3,
        (2, 4, 8),
    )
    ppo = settings_of(found)
    assert (ppo.gamma, ppo.gae_lambda, ppo.clip_range, ppo.epochs, ppo.minibatch) == (0.99, 0.95, 0.2, 10, 64)
    assert (ppo.entropy_weight, ppo.value_weight, ppo.max_grad_norm, ppo.by_time) == (0.0, 0.5, 0.5, True)
    assert (found.learning_rate, found.anneal, found.envs * found.steps) == (3e-4, False, 2048)
    assert recipe_of(SYSTEM, ["preset=paper", "branch=E"]) == replace(found, branch="E")


def test_other_presets_are_refused() -> None:
    with pytest.raises(TrainingError, match="contention-rl has no preset 'papers'; its presets: paper"):
        recipe_of(SYSTEM, ["preset=papers"])
    with pytest.raises(TrainingError, match=r"no field 'branches'.*presets: paper"):
        recipe_of(SYSTEM, ["branches=A"])
    with pytest.raises(TrainingError, match="cells is 'scalars'"):
        recipe_of(SYSTEM, ["cells=scalars"])
    with pytest.raises(TrainingError, match="network is 'lstm'"):
        recipe_of(SYSTEM, ["network=lstm"])


def test_a_cell_is_one_number_and_candidates_are_where_figure_2_has_them(small: SimulatorBackend) -> None:
    encoding = replace(encoding_of(PAPER, small), num_nodes=4, gpus_per_node=8, usual=(0.2, 0.4, 0.6))
    jobs = [Job(gpus=4, occupied={0: 2, 2: 2}), Job(gpus=8), Job(gpus=2), Job(gpus=8), Job(gpus=4), Job(gpus=2)]
    view = Encoder(encoding).observe(cluster([Node()] * 4, jobs))
    profile = scalar((0.2, 0.4, 0.6))
    expected = np.zeros((4, 16))
    expected[0, :2] = expected[2, :2] = profile
    # 8 GPUs on 1, 2 and 4 nodes; 2 GPUs on 1 and 2; 4 GPUs on 1, 2 and 4. Columns count GPUs of a node, from 1.
    for row, column in ((0, 8), (1, 4), (2, 2), (0, 2), (1, 1), (0, 4), (1, 2), (2, 1)):
        expected[row, 8 + column - 1] = profile
    assert view.array == pytest.approx(expected)
    assert [candidate.row for candidate in view.candidates] == [1, 2, 4]
    # ∅, and for each candidate the four lists of one node, six of two and one of four.
    assert encoding.actions == 1 + 3 * (4 + 6 + 1)


@pytest.mark.parametrize("branch", sorted(BRANCHES))
def test_a_round_earns_equation_2(branch: str) -> None:
    """-W1 CS + W2 Util, section IV; W1 and W2 of section VI."""
    w1, w2 = {"A": (0.3, 0.7), "B": (0.4, 0.6), "C": (0.5, 0.5), "D": (0.6, 0.4), "E": (0.7, 0.3)}[branch]
    env = ContentionEnv(branch=branch, traces=ContentionRL(demands=PAPER.demands), **TOGETHER)
    env.reset(seed=1)
    while env.action_masks()[1:].any():
        env.step(np.int64(np.flatnonzero(env.action_masks())[-1]))
    _, reward, *_, info = env.step(np.int64(0))
    running = env.loop.running
    cs = np.mean([1 / job.speed for job in running])
    util = sum(job.occupied for job in running) / 32
    assert cs > 1
    assert info["elapsed"] == 1.0
    assert reward == pytest.approx(-w1 * cs + w2 * util)


def test_its_environments_are_asked_once_a_round(small: SimulatorBackend) -> None:
    envs = environments(SMALL, small)
    training = PpoTrainer(envs, encoding_of(SMALL, small), SMALL, 0)
    training._collector.restart([1, 2])
    rollout = training._collector.collect(training.ppo.act)
    assert rollout.elapsed is not None
    over = rollout.terminated | rollout.truncated
    assert all(elapsed == int(elapsed) for elapsed in rollout.elapsed[~over].tolist())
    assert {0.0, 1.0} <= set(rollout.elapsed.flatten().tolist())


def test_the_network_is_two_layers_of_64_for_logits_and_two_for_values(small: SimulatorBackend) -> None:
    encoding = replace(encoding_of(PAPER, small), num_nodes=4, gpus_per_node=8)
    network = network_of(encoding, PAPER.network, PAPER.hidden, PAPER.pair)
    assert isinstance(network, PaperActorCritic)
    layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    assert [(each.in_features, each.out_features) for each in layers] == [
        (64, 64),
        (64, 64),
        (64, 34),
        (64, 64),
        (64, 64),
        (64, 1),
    ]
    assert sum(isinstance(module, torch.nn.Tanh) for module in network.modules()) == 4
    logits, values = network(torch.zeros(5, 4, 16))
    assert (logits.shape, values.shape) == ((5, 34), (5,))
    with pytest.raises(EncoderError, match="network is 'lstm'; give nodes or mlp"):
        network_of(encoding, "lstm", 64, 32)


@pytest.mark.parametrize(("anneal", "rates"), [(False, [3e-4] * 3), (True, [3e-4, 2e-4, 1e-4])])
def test_the_learning_rate_stays_unless_it_is_annealed(
    small: SimulatorBackend, anneal: bool, rates: list[float]
) -> None:
    recipe = replace(SMALL, anneal=anneal)
    training = PpoTrainer(
        in_one_process(2, cluster="2x4", traces=JOBS, **TOGETHER), encoding_of(recipe, small), recipe, 0
    )
    found = []
    for _ in rates:
        training.run_stage()
        found.append(training._optimizer.param_groups[0]["lr"])
    assert found == pytest.approx(rates)


def test_a_training_leaves_its_last_weights_and_they_serve(tmp_path: Path, small: SimulatorBackend) -> None:
    card = card_of(SMALL, small)
    encoding = encoding_of(SMALL, small)
    training = PpoTrainer(environments(SMALL, small), encoding, SMALL, 3)
    validated: list[int] = []

    def validate(_network: object) -> dict[str, float]:
        validated.append(training.stage)
        return {"jct_s": 1.0}

    with TrainingRun(tmp_path, card, resume=False, better=SYSTEM.better) as run:
        train(run, training, validate)
    assert validated == [3]
    arrays, kept = weights.load(tmp_path / "best", SYSTEM.name, system=SYSTEM.name, encoder="contention-rl/2")
    last = {name: tensor.numpy() for name, tensor in training.network.state_dict().items()}
    assert all(np.array_equal(arrays[name], last[name]) for name in last)
    assert {each.name for each in fields(Recipe)} <= kept.recipe.keys()
    assert RlBase(str(tmp_path)).decide(small.example()).allocation
    acting = agent(str(tmp_path))
    assert (acting.options["cells"], acting.options["decide"], acting.options["branch"]) == ("scalar", "rounds", "B")
