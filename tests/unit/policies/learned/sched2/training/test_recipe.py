"""Training of SCHED2: it is deterministic, continues where it was interrupted, and learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from policies.errors import TrainingError
from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.state.kinds import COMPLETIONS, EFFECTIVENESS
from policies.learned.sched2.state.state_columns import StateColumns
from policies.learned.sched2.training.q_learning import QLearning
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.rule_recipe import RuleRecipe
from policies.learned.sched2.training.rule_search import RuleSearch
from policies.learned.weights.card import draft
from simulator.papers.sched2.env import Sched2Env
from tests.unit.policies.learned.sched2.agents import FEW, SMALL, environments, small_recipe, small_search


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def learning(seed: int = 1, **options: Any) -> QLearning:
    recipe = small_recipe(**options)
    return QLearning(environments(recipe), SMALL.columns, recipe, seed)


def searching(seed: int = 1, **options: Any) -> RuleSearch:
    recipe = small_search(**options)
    return RuleSearch(environments(recipe), SMALL.columns, recipe, seed)


def carried_out(one: QLearning) -> dict[str, torch.Tensor]:
    for _ in range(one.round, one.recipe.rounds):
        one.run_round()
    return one.network.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"network": "paper", "n_steps": 1},
        {"demonstrations": 1},
        {"reward": COMPLETIONS, "horizon_h": 8.0, "double": False},
    ],
)
def test_equal_seeds_give_equal_weights_and_other_seeds_others(options: dict[str, Any]) -> None:
    first = carried_out(learning(1, **options))
    assert all(torch.isfinite(tensor).all() for tensor in first.values())
    assert same(first, carried_out(learning(1, **options)))
    assert not same(first, carried_out(learning(2, **options)))


def test_an_interrupted_training_continues_to_the_same_weights() -> None:
    whole = carried_out(learning())
    first = learning()
    first.run_round()
    second = learning()
    second.load_state_dict(first.state_dict())
    assert same(whole, carried_out(second))


def test_random_actions_become_fewer_until_the_end_of_exploring() -> None:
    seen: list[float] = []
    one = learning(rounds=4, epsilon=0.9, epsilon_end=0.1, exploring=0.5)
    once = one.dqn.act

    def act(*arguments: Any) -> Any:
        seen.append(arguments[2])
        return once(*arguments)

    one.dqn.act = act  # type: ignore[method-assign]
    carried_out(one)
    assert sorted(set(seen), reverse=True) == pytest.approx([0.9, 0.5, 0.1])


def test_rewards_are_discounted_by_action_or_by_time() -> None:
    by_action, by_time = learning(gamma=0.9, n_steps=1), learning(horizon_h=5.0, n_steps=1)
    for one in (by_action, by_time):
        one.run_round()
    gammas = by_action.dqn.memory.sample(200).rows["gammas"]
    assert sorted(set(gammas.tolist())) == pytest.approx([0.0, 0.9])
    assert len(np.unique(np.round(by_time.dqn.memory.sample(200).rows["gammas"], 6))) > 10


def test_the_search_finds_a_lower_cost() -> None:
    one = searching(rounds=5, rules=8, traces=3)
    figures = [one.run() for _ in range(5)]
    assert all(each["best_rule"] <= each["mean_rule"] for each in figures)
    assert not np.allclose(one.search.mean, searching().search.mean)


@pytest.mark.parametrize("reward", [COMPLETIONS, EFFECTIVENESS])
def test_costs_are_those_of_episodes_played_alone(reward: str) -> None:
    recipe = small_search(rules=3, traces=6, envs=4, reward=reward)
    busy = replace(FEW, mean_gap_s=100.0, one_gpu_share=0.5)
    one = RuleSearch(environments(recipe, traces=busy), SMALL.columns, recipe, 1)
    rules, traces = one.search.draw(), [5, 6, 7, 8, 9, 10]
    costs = one.costs(rules, traces)
    env = Sched2Env(traces=busy, cluster="4x4", candidates=4)
    sign, figure = (-1, "effectiveness") if reward == EFFECTIVENESS else (1, "avg_jct_s")
    alone = [[sign * outcome[figure] for outcome in env.play(rules, [trace])[0]] for trace in traces]
    assert np.array_equal(costs, np.transpose(alone))
    assert len(np.unique(costs)) > 6


def test_an_episode_that_was_cut_off_costs_more_than_any() -> None:
    recipe = small_search()
    one = RuleSearch(environments(recipe, max_steps=3), SMALL.columns, recipe, 1)
    assert np.isinf(one.costs(one.search.draw(), [5])).all()
    one.run()
    assert np.isfinite(one.search.draw()).all()


def test_demonstrations_teach_the_shown_actions() -> None:
    one = learning(rounds=1, demonstrations=1, pretrain_batches=150, learning_rate=5e-3, hidden=16, batch=64)
    one.run_round()
    memory = one.dqn.memory.sample(300).rows
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
        ({"demonstrations": -1}, "demonstrations is -1; give 0 or more"),
        ({"network": "other"}, "network is 'other'; give paper or features"),
        ({"reward": "money"}, "reward is 'money'; give effectiveness or completions"),
        ({"rule": "best"}, "rule is 'best'; give local-sif or local-spf"),
        ({"gaps_s": ()}, "gaps_s is"),
    ],
)
def test_impossible_recipes_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        Recipe(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rules": 2}, "rules is 2; give at least 3"),
        ({"traces": 0}, "traces is 0; give more than 0"),
        ({"rounds": 0}, "rounds is 0; give more than 0"),
        ({"reward": "money"}, "reward is 'money'; give effectiveness or completions"),
        ({"gaps_s": (0.0,)}, "gaps_s is"),
    ],
)
def test_impossible_searches_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        RuleRecipe(**options)


@pytest.mark.parametrize("made", [QLearning, RuleSearch])
def test_environments_with_other_observations_are_refused(made: Any) -> None:
    recipe = small_recipe() if made is QLearning else small_search()
    with pytest.raises(TrainingError, match="make both with the same cluster and candidates"):
        made(environments(recipe), StateColumns(2, 4, 4), recipe, 1)


def test_a_card_can_hold_a_recipe() -> None:
    from policies.learned.sched2.encoder import NAME, encoding_of, settings

    card = draft(
        system="sched2", recipe=settings(SMALL, Recipe()), seed=1, encoder=NAME, shapes=(SMALL.supports,), data="none",
        data_sha256="0" * 64,
    )  # fmt: skip
    assert encoding_of(card.recipe) == SMALL != Encoding()
