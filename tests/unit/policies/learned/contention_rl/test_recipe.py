"""Training: it learns, the same seed gives the same weights, and it continues after a stage to the same weights."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import TrainingError
from policies.learned.algorithms.advantage import discounts
from policies.learned.contention_rl.encoder import NAME, Encoding
from policies.learned.contention_rl.policy import SYSTEM, ContentionAgent, settings
from policies.learned.contention_rl.recipe import PpoTrainer, Recipe, StageReport, train
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.weights.card import draft
from simulator.traces.generators.contention_rl import ContentionRL
from tests.unit.policies.learned.contention_rl.agents import environments

SMALL = Recipe(hidden=16, pair=8, steps=24, batches=2, stages=3, minibatch=64, epochs=2)
WORLD: dict[str, Any] = {
    "traces": ContentionRL(jobs=12, demands=(1, 2, 4), cluster_gpus=8),
    "cluster": "2x4",
    "reward": "jct",
    "cells": "features",
}
ENCODING = Encoding(num_nodes=2, gpus_per_node=4, cells="features")


def training_of(recipe: Recipe = SMALL, seed: int = 5, envs: int = 4, **options: Any) -> PpoTrainer:
    torch.set_num_threads(1)
    return PpoTrainer(environments(envs, **WORLD | options), ENCODING, recipe, seed)


def weights_of(training: PpoTrainer) -> dict[str, Any]:
    return {name: tensor.numpy().tobytes() for name, tensor in training.network.state_dict().items()}


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    first, again, other = (training_of(seed=seed) for seed in (5, 5, 6))
    for training in (first, again, other):
        training.run_stage()
    assert weights_of(first) == weights_of(again) != weights_of(other)


def test_a_continued_training_gives_the_same_weights() -> None:
    whole = training_of()
    whole.run_stage()
    left = copy.deepcopy(whole.state_dict())
    while not whole.is_done:
        whole.run_stage()
    later = training_of(seed=5)
    torch.manual_seed(99)
    later.load_state_dict(left)
    assert later.stage == 1
    progress: StageReport | None = None
    while not later.is_done:
        progress = later.run_stage()
    assert weights_of(later) == weights_of(whole)
    assert progress is not None
    assert (progress.stage, progress.steps) == (3, 3 * 2 * 24 * 4)
    assert all(np.isfinite(loss) for loss in progress.losses.values())


def test_it_learns() -> None:
    # One job at a time, each as long as a round: to wait when a job could start delays every job by a round.
    world: dict[str, Any] = {
        "traces": ContentionRL(jobs=12, demands=(4,), duration_s=300, cluster_gpus=4),
        "cluster": "1x4",
    }
    recipe = Recipe(hidden=16, pair=8, steps=32, batches=4, stages=3, minibatch=64, learning_rate=1e-2, gamma=0.9)
    encoding = Encoding(num_nodes=1, gpus_per_node=4, cells="features")
    training = PpoTrainer(environments(8, **WORLD | world), encoding, recipe, 5)
    stages = [training.run_stage() for _ in range(recipe.stages)]
    first, _, last = (np.mean([episode.info["outcome"]["avg_jct_s"] for episode in stage.episodes]) for stage in stages)
    best_s = 300 * 13 / 2
    assert first > 1.25 * best_s
    assert best_s <= last < 1.1 * best_s


def test_only_time_is_discounted() -> None:
    training = training_of(Recipe(gamma=0.5, gae_lambda=1.0, steps=16, batches=1, stages=1, hidden=16, pair=8))
    collector = training._collector
    collector.restart([1, 2, 3, 4])
    rollout = collector.collect(training.ppo.act)
    _, returns = training.ppo.advantages(rollout)
    assert rollout.elapsed is not None
    assert {0.0, 1.0} <= set(rollout.elapsed.flatten().tolist())
    over = rollout.terminated | rollout.truncated
    for step, env in np.argwhere(~over[:-1]):
        elapsed = rollout.elapsed[step, env]
        mine = rollout.rewards[step, env] * (1 - 0.5**elapsed) / max(elapsed, 1e-9)
        assert returns[step, env] == pytest.approx(mine + 0.5**elapsed * returns[step + 1, env], abs=1e-5)


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.5, 20.0]), min_size=1), st.floats(0.5, 0.999))
def test_however_time_is_cut_into_steps_an_even_reward_is_worth_the_same(steps: list[float], gamma: float) -> None:
    elapsed = np.array(steps)
    factors, counts = discounts(elapsed, gamma)
    worth = 0.0
    for factor, count, rounds in zip(factors[::-1], counts[::-1], elapsed[::-1], strict=True):
        worth = count * rounds * 1.0 + factor * worth
    assert worth == pytest.approx(1 - gamma ** elapsed.sum(), abs=1e-9)
    assert discounts(elapsed, 1.0)[1].tolist() == [1.0] * len(steps)


def test_the_served_agent_prefers_the_action_that_training_drew_most_often() -> None:
    training = training_of()
    training.run_stage()
    agent = ContentionAgent(ENCODING, training.network)
    env = gymnasium.make("simulator.envs:headway/Contention-v0", **WORLD)
    seen, _ = env.reset(seed=3)
    raw: Any = env.unwrapped
    view = agent.encoder.observe(raw.simulation.state())
    assert np.array_equal(view.array, seen)
    masks = view.mask()
    drawn = [int(training.ppo.act(seen[None], masks[None])["actions"][0]) for _ in range(400)]
    assert masks[drawn].all()
    counts = np.bincount(drawn, minlength=len(masks))
    chosen = agent.choose(view, must_act=False)
    assert counts[chosen.action] / 400 == pytest.approx(chosen.share, abs=0.1)
    assert counts[chosen.action] > 0.5 * counts.max()


def test_a_training_in_its_folder_leaves_weights_that_serve(tmp_path: Path) -> None:
    training = training_of(Recipe(hidden=16, pair=8, steps=8, batches=1, stages=2, epochs=1))
    kept = settings(ENCODING, training.recipe)
    card = draft(
        system=SYSTEM,
        recipe=kept,
        seed=5,
        encoder=NAME,
        shapes=[ENCODING.supports],
        data="12 jobs",
        data_sha256="0" * 64,
    )
    figures = iter((3.0, 4.0))
    with TrainingRun(tmp_path / "run", card, resume=False, better="lower") as run:
        train(run, training, lambda network: {"jct_s": next(figures)})
        best = run.best_folder
    assert training.is_done
    agent = ContentionAgent.load(str(best.parent))
    assert agent.encoder.encoding == ENCODING
    assert json.loads((best / f"{SYSTEM}.json").read_text())["results"]["jct_s"] == 3.0


def test_environments_of_another_form_are_refused() -> None:
    with pytest.raises(TrainingError, match="make both with the same cluster"):
        PpoTrainer(environments(1, **WORLD | {"cells": "scalar"}), ENCODING, SMALL, 0)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"gamma": 1.5}, {"entropy_weight": -0.1}, {"learning_rate": 0.0}])
def test_recipes_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(wrong))):
        Recipe(**wrong)
