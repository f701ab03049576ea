"""Training SCHED2: deterministic, goes on where it was left, and learns where there is something to learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from policies.errors import TrainingError
from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.state.state_layout import StateLayout
from policies.learned.sched2.training.recipe import EFFECTIVENESS, Recipe
from policies.learned.sched2.training.trainer import DqnTrainer
from policies.learned.weights.card import draft
from simulator.papers.sched2.env import Sched2Env
from tests.unit.policies.learned.sched2.agents import FEW, SMALL, environments, small_recipe


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def training(seed: int = 1, **options: Any) -> DqnTrainer:
    recipe = small_recipe(**options)
    return DqnTrainer(environments(recipe), SMALL.layout, recipe, seed)


def carried_out(one: DqnTrainer) -> dict[str, torch.Tensor]:
    for _ in range(one.searched, one.recipe.searches):
        one.run_search()
    for _ in range(one.round, one.recipe.rounds):
        one.run_round()
    return one.network.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize(
    "options", [{}, {"searches": 0}, {"searches": 0, "demonstrations": 0, "reward": EFFECTIVENESS}]
)
def test_equal_seeds_give_equal_weights_and_others_do_not(options: dict[str, Any]) -> None:
    first = carried_out(training(1, **options))
    assert all(torch.isfinite(tensor).all() for tensor in first.values())
    assert same(first, carried_out(training(1, **options)))
    assert not same(first, carried_out(training(2, **options)))


@pytest.mark.parametrize("left_after", ["search", "round"])
def test_one_that_was_left_goes_on_to_the_same_weights(left_after: str) -> None:
    whole = carried_out(training())
    first = training()
    first.run_search()
    if left_after == "round":
        first.run_search()
        first.run_round()
    second = training()
    second.load_state_dict(first.state_dict())
    assert same(whole, carried_out(second))


def test_search_finds_what_costs_less() -> None:
    one = training(searches=5, rules=8, traces=3)
    figures = [one.run_search() for _ in range(5)]
    assert all(each["best_rule"] <= each["mean_rule"] for each in figures)
    assert not np.allclose(one.rules.search.mean, training().rules.search.mean)


@pytest.mark.parametrize("reward", ["completions", EFFECTIVENESS])
def test_costs_are_those_of_episodes_played_alone(reward: str) -> None:
    recipe = small_recipe(rules=3, traces=6, envs=4, reward=reward)
    busy = replace(FEW, mean_gap_s=100.0, one_gpu_share=0.5)
    one = DqnTrainer(environments(recipe, traces=busy), SMALL.layout, recipe, 1)
    rules, traces = one.rules.search.draw(), [5, 6, 7, 8, 9, 10]
    costs = one.rules.costs(rules, traces)
    env = Sched2Env(traces=busy, cluster="4x4", candidates=4)
    sign, figure = (-1, "effectiveness") if reward == EFFECTIVENESS else (1, "avg_jct_s")
    alone = [[sign * outcome[figure] for outcome in env.play(rules, [trace])[0]] for trace in traces]
    assert np.array_equal(costs, np.transpose(alone))
    assert len(np.unique(costs)) > 6


def test_an_episode_that_was_cut_off_costs_more_than_any() -> None:
    recipe = small_recipe()
    one = DqnTrainer(environments(recipe, max_steps=3), SMALL.layout, recipe, 1)
    assert np.isinf(one.rules.costs(one.rules.search.draw(), [5])).all()
    one.run_search()
    assert np.isfinite(one.rules.search.draw()).all()


def test_demonstrations_teach_what_was_shown() -> None:
    one = training(
        searches=0, rounds=1, demonstrations=1, pretrain_batches=150, learning_rate=5e-3, hidden=16, batch=64
    )
    one.run_round()
    memory = one.learning.dqn.memory.sample(300).rows
    seen, masks = torch.from_numpy(memory["seen"]).float(), torch.from_numpy(memory["masks"])
    with torch.no_grad():
        chosen = one.network.q_values(seen, masks).argmax(1).numpy()
    assert memory["shown"].all()
    assert (chosen == memory["actions"]).mean() > 0.75


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 0}, "rounds is 0; give more than 0"),
        ({"epsilon": 1.5}, "epsilon is 1.5; give a number from 0 to 1"),
        ({"rules": 2}, "rules is 2; give at least 3"),
        ({"traces": 0}, "traces is 0; give more than 0"),
        ({"searches": -1}, "searches is -1; give 0 or more"),
        ({"reward": "money"}, "reward is 'money'; give effectiveness or completions"),
        ({"rule": "best"}, "rule is 'best'; give local-sif or local-spf"),
        ({"gaps_s": ()}, "gaps_s is"),
    ],
)
def test_recipes_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        Recipe(**options)


def test_environments_that_show_something_else() -> None:
    recipe = small_recipe()
    with pytest.raises(TrainingError, match="make both with the same cluster and candidates"):
        DqnTrainer(environments(recipe), StateLayout(2, 4, 4), recipe, 1)


def test_a_card_can_hold_a_recipe() -> None:
    from policies.learned.sched2.encoder import NAME
    from policies.learned.sched2.policy import encoding_of, settings

    card = draft(
        system="sched2", recipe=settings(SMALL, Recipe()), seed=1, encoder=NAME, shapes=(SMALL.supports,), data="none",
        data_sha256="0" * 64,
    )  # fmt: skip
    assert encoding_of(card.recipe) == SMALL != Encoding()
