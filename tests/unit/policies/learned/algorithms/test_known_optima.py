"""Each algorithm on a small task whose optimum is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from policies.learned.algorithms.actor_critic import ActorCriticSettings, AdvantageActorCritic
from policies.learned.algorithms.cross_entropy import CrossEntropyMethod
from policies.learned.algorithms.distribution import MultiCategorical
from policies.learned.algorithms.dqn import Dqn, DqnSettings
from policies.learned.algorithms.evolution import Evolution
from policies.learned.algorithms.imitation import LOSSES, Imitation
from policies.learned.algorithms.networks import MlpActorCritic, MlpQNetwork
from policies.learned.algorithms.reinforce import (
    Episodes,
    Reinforce,
    ReinforceSettings,
    discounted_returns,
    step_baseline,
)
from policies.learned.algorithms.replay import PrioritizedReplay
from tests.unit.policies.learned.algorithms.chain import GAMMA, LENGTH, best_q, transitions

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


# REINFORCE


def test_returns_and_baseline_by_hand() -> None:
    rewards = np.array([[1.0, 2.0], [1.0, 9.0], [1.0, 9.0]])
    played = np.array([[True, True], [True, False], [True, False]])
    returns = discounted_returns(rewards, played, 0.5)
    assert returns.tolist() == [[1.75, 2.0], [1.5, 0.0], [1.0, 0.0]]
    assert step_baseline(returns).tolist() == [[1.875], [0.75], [0.5]]


def _played(act: Callable[[torch.Tensor], torch.Tensor], episodes: int, parts: int) -> Episodes:
    """Episodes of 4 to 6 steps in which every part of the action should be the step's number modulo 3."""
    steps, rng = 6, np.random.default_rng(0)
    seen = np.repeat(np.eye(steps, dtype=np.float32)[:, None], episodes, axis=1)
    actions = act(torch.from_numpy(seen.reshape(-1, steps))).numpy().reshape(steps, episodes, -1)
    rewards = (actions == (np.arange(steps) % 3)[:, None, None]).mean(axis=2)
    played = np.arange(steps)[:, None] < rng.integers(4, steps + 1, episodes)[None]
    return Episodes(
        observations=seen,
        masks=None,
        actions=actions if parts > 1 else actions[:, :, 0],
        rewards=rewards,
        played=played,
    )


def test_reinforce_finds_the_best_actions_of_several_parts() -> None:
    network = MlpActorCritic(6, (4, 3), (16,))
    learner = Reinforce(
        network, torch.optim.Adam(network.parameters(), 0.02), ReinforceSettings(), distribution=MultiCategorical
    )
    rng = torch.Generator().manual_seed(0)
    for _ in range(150):
        learner.update(_played(lambda seen: MultiCategorical(network(seen)[0]).sample(rng), 20, 4))
    best = MultiCategorical(network(torch.eye(6))[0]).mode()
    assert best[:5].tolist() == [[step % 3] * 4 for step in range(5)]


def test_a_step_on_several_sequences_is_along_the_mean_of_their_gradients() -> None:
    network, rng = MlpActorCritic(6, (4, 3), (16,)), torch.Generator().manual_seed(0)
    learner = Reinforce(
        network, torch.optim.SGD(network.parameters(), 0.1), ReinforceSettings(entropy_weight=0.1), MultiCategorical
    )
    begin = {name: each.clone() for name, each in network.state_dict().items()}
    one, two = (_played(lambda seen: MultiCategorical(network(seen)[0]).sample(rng), count, 4) for count in (5, 9))

    def moved(*sequences: Episodes) -> dict[str, torch.Tensor]:
        network.load_state_dict(begin)
        learner.update_all(sequences)
        return {name: each - begin[name] for name, each in network.state_dict().items()}

    first, second, both = moved(one), moved(two), moved(one, two)
    assert any(each.abs().max() > 0 for each in both.values())
    for name, each in both.items():
        torch.testing.assert_close(each, (first[name] + second[name]) / 2)


# Imitation


@pytest.mark.parametrize("loss", LOSSES)
def test_imitation_comes_to_the_teachers_actions(loss: str) -> None:
    rng = np.random.default_rng(1)
    seen = torch.from_numpy(rng.normal(size=(2000, 4)).astype(np.float32))
    teacher = torch.from_numpy(rng.normal(size=(4, 3)).astype(np.float32))
    masks = torch.from_numpy(rng.random((2000, 3)) < 0.8)
    masks[:, 0] = True
    actions = (seen @ teacher).masked_fill(~masks, -1e9).argmax(1)
    network = MlpActorCritic(4, 3, (32,))
    learner = Imitation(network, torch.optim.Adam(network.parameters(), 5e-3), loss)
    for step in range(400):
        rows = slice(step * 250 % 1500, step * 250 % 1500 + 250)
        learner.update({"seen": seen[rows], "actions": actions[rows], "masks": masks[rows]})
    with torch.no_grad():
        unseen = network(seen[1750:])[0].masked_fill(~masks[1750:], -1e9).argmax(1)
    assert (unseen == actions[1750:]).float().mean() > 0.93


@pytest.mark.parametrize("loss", LOSSES)
def test_imitation_has_nothing_to_learn_where_only_the_shown_action_is_possible(loss: str) -> None:
    network = MlpActorCritic(4, 3, (8,))
    learner = Imitation(network, torch.optim.Adam(network.parameters(), 5e-3), loss)
    rows = {"seen": torch.randn(20, 4), "actions": torch.arange(20) % 3}
    masks = torch.nn.functional.one_hot(rows["actions"], 3).bool()
    assert learner.update({**rows, "masks": masks})["loss"] == pytest.approx(0.0, abs=1e-6)
    assert learner.update(rows)["loss"] > 0.3


def test_an_unknown_loss() -> None:
    network = MlpActorCritic(4, 3)
    with pytest.raises(ValueError, match="give cross-entropy, mean-square, absolute"):
        Imitation(network, torch.optim.Adam(network.parameters()), "hinge")


# Q-learning


@pytest.mark.parametrize(("double", "dueling"), [(True, True), pytest.param(False, False, marks=pytest.mark.slow)])
def test_q_learning_comes_to_the_values_of_the_chain(double: bool, dueling: bool) -> None:
    memory = PrioritizedReplay(1000, seed=0, anneal=1000)
    memory.add(transitions())
    network = MlpQNetwork(LENGTH, 2, (64,), dueling=dueling)
    settings = DqnSettings(batch=32, double=double, tau=0.05)
    learner = Dqn(network, network.parameters(), memory, settings, rate=3e-3)
    for _ in range(1000):
        learner.learn()
    with torch.no_grad():
        found = network.q_values(torch.eye(LENGTH), torch.ones(LENGTH, 2, dtype=torch.bool)).numpy()
    assert np.abs(found - best_q()).max() < 0.05
    best = learner.act(
        np.eye(LENGTH, dtype=np.float32), np.ones((LENGTH, 2), dtype=np.bool_), 0.0, np.random.default_rng()
    )
    assert best.tolist() == [1] * LENGTH


def test_the_margin_makes_a_shown_action_the_best() -> None:
    rows = transitions()
    keep = rows["actions"] == 0
    shown = {name: array[keep] for name, array in rows.items()} | {"shown": np.ones(keep.sum(), dtype=np.bool_)}
    memory = PrioritizedReplay(1000, seed=0, anneal=1000)
    memory.add(shown)
    network = MlpQNetwork(LENGTH, 2, (64,))
    settings = DqnSettings(batch=32, tau=0.05, margin=0.2, margin_weight=1.0)
    learner = Dqn(network, network.parameters(), memory, settings, rate=3e-3)
    for _ in range(300):
        learner.learn()
    assert (
        learner.act(
            np.eye(LENGTH, dtype=np.float32), np.ones((LENGTH, 2), dtype=np.bool_), 0.0, np.random.default_rng()
        ).tolist()
        == [0] * LENGTH
    )


def test_fixed_parameters_do_not_change() -> None:
    memory = PrioritizedReplay(1000, seed=0, anneal=1000)
    memory.add(transitions())
    network = MlpQNetwork(LENGTH, 2, (8,))
    assert network.value is not None
    fixed = network.value.weight.detach().clone()
    learned = [each for name, each in network.named_parameters() if not name.startswith("value.")]
    learner = Dqn(network, learned, memory, DqnSettings(batch=32, max_grad_norm=1e-3), rate=1e-2)
    before = network.advantage.weight.detach().clone()
    for _ in range(20):
        learner.learn()
    assert torch.equal(network.value.weight, fixed)
    # Gradients that pile up elsewhere would press these steps down in the clipped norm.
    assert torch.isfinite(network.advantage.weight).all() and not torch.equal(network.advantage.weight, before)


@pytest.mark.slow
def test_priorities_need_fewer_updates_than_chance_where_rewards_are_rare() -> None:
    """The task of Schaul et al. 2016, section 3.1: all transitions of a chain in which one wrong action ends the episode."""

    def updates(alpha: float, seed: int) -> int:
        memory = PrioritizedReplay(10_000, seed=seed, alpha=alpha, beta=0.0, anneal=10**9)
        memory.add(transitions(repeat_failures=20))
        q = np.zeros((LENGTH, 2))
        for count in range(1, 40_000):
            sample = memory.sample(1)
            row = {name: array[0] for name, array in sample.rows.items()}
            at, follows = int(row["seen"].argmax()), int(row["next_seen"].argmax())
            error = row["returns"] + row["gammas"] * q[follows].max() - q[at, row["actions"]]
            q[at, row["actions"]] += 0.5 * error
            memory.update(sample.indices, np.array([abs(error)]))
            if np.abs(q - best_q()).max() < 0.1:
                return count
        raise AssertionError("never came to the values")

    by_priority, by_chance = (float(np.median([updates(alpha, seed) for seed in range(3)])) for alpha in (0.7, 0.0))
    assert by_priority < 0.5 * by_chance


# Actor-critic with replay


def test_actor_critic_with_replay_comes_to_the_best_actions() -> None:
    memory = PrioritizedReplay(4000, seed=0, alpha=0.0, anneal=1)
    network = MlpActorCritic(LENGTH, 2, (32,))
    learner = AdvantageActorCritic(
        network,
        torch.optim.Adam(network.parameters(), 5e-3),
        ActorCriticSettings(gamma=GAMMA, entropy_weight=0.01),
        torch.Generator().manual_seed(0),
    )
    rows = transitions()
    memory.add(
        {
            "seen": rows["seen"],
            "actions": rows["actions"],
            "rewards": rows["returns"],
            "next_seen": rows["next_seen"],
            "terminated": rows["gammas"] == 0,
        }
    )
    for _ in range(1000):
        learner.update_from(memory, 64)
    logits, _ = network(torch.eye(LENGTH))
    assert logits.argmax(1).tolist() == [1] * LENGTH


# Evolution


def test_evolution_finds_the_minimum_of_a_curved_valley() -> None:
    evolution = Evolution(np.zeros(4), np.ones(4), 12, lambda number: np.random.default_rng([3, number]), step=0.5)
    for _ in range(220):
        x = evolution.draw()
        rosenbrock = (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)
        evolution.learn(1.0 + rosenbrock[:, None] * np.array([[1.0, 7.0]]))
    assert evolution.mean == pytest.approx(np.ones(4), abs=0.05)


def test_the_cross_entropy_method_finds_the_minimum_of_a_bowl() -> None:
    best, rng = np.array([1.0, -2.0, 0.5]), np.random.default_rng(5)
    search = CrossEntropyMethod(np.zeros(3), np.ones(3), mean_step=0.7, spread_step=0.5)
    for _ in range(60):
        rows = search.draw(24, rng)
        costs = ((rows - best) ** 2).sum(axis=1)[:, None] * np.array([[1.0, 2.0]])
        # In two parts, as a recipe with several rounds in a generation adds them.
        search.add(costs[:10], first=True)
        search.add(costs[10:], first=False)
        elite, scores = search.best(6)
        assert scores.tolist() == sorted(scores.tolist())
        search.move(rows[elite])
    assert search.mean == pytest.approx(best, abs=0.02)
