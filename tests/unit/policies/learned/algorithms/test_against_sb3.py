"""PPO, A2C and DQN on CartPole beside stable-baselines3, which uses none of our code: the same return within noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from policies.learned.algorithms.actor_critic import ActorCriticSettings, AdvantageActorCritic
from policies.learned.algorithms.dqn import Dqn, DqnSettings
from policies.learned.algorithms.n_step_returns import NStepReturns
from policies.learned.algorithms.networks import MlpActorCritic, MlpQNetwork
from policies.learned.algorithms.ppo import Ppo, PpoSettings
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.algorithms.rollout import Collector
from policies.learned.evaluation.statistics import Mean

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SEEDS = range(5)
TASK = "CartPole-v1"
Greedy = Callable[[np.ndarray[Any, Any]], int]


def envs_of(count: int) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: gymnasium.make(TASK)] * count, autoreset_mode=AutoresetMode.SAME_STEP)


def returns_of(choose: Greedy, episodes: int = 20) -> float:
    """The mean return of the likeliest actions on episodes that no training had."""
    env = gymnasium.make(TASK)
    total = 0.0
    for episode in range(episodes):
        seen, _ = env.reset(seed=10_000 + episode)
        over = False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(choose(seen))
            total += float(reward)
            over = terminated or truncated
    return total / episodes


def likeliest(network: MlpActorCritic) -> Greedy:
    def choose(seen: np.ndarray[Any, Any]) -> int:
        with torch.inference_mode():
            return int(network(torch.from_numpy(seen[None]))[0].argmax())

    return choose


def ppo(seed: int) -> float:
    torch.manual_seed(seed)
    network = MlpActorCritic(4, 2)
    learner = Ppo(network, torch.optim.Adam(network.parameters(), 3e-4, eps=1e-5), PpoSettings(), torch.Generator())
    collector = Collector(envs_of(8), 256, masked=False)
    collector.restart(range(seed * 100, seed * 100 + 8))
    for _ in range(25):
        learner.update(collector.collect(learner.act))
    return returns_of(likeliest(network))


def sb3_ppo(seed: int) -> float:
    model = PPO("MlpPolicy", make_vec_env(TASK, 8, seed=seed), n_steps=256, seed=seed, device="cpu")
    return returns_of(sb3_greedy(model.learn(25 * 256 * 8)))


def a2c(seed: int) -> float:
    torch.manual_seed(seed)
    network = MlpActorCritic(4, 2)
    optimizer = torch.optim.RMSprop(network.parameters(), 7e-4, alpha=0.99, eps=1e-5)
    learner = AdvantageActorCritic(network, optimizer, ActorCriticSettings(), torch.Generator())
    collector = Collector(envs_of(8), 5, masked=False)
    collector.restart(range(seed * 100, seed * 100 + 8))
    for _ in range(2500):
        learner.update(collector.collect(learner.act))
    return returns_of(likeliest(network))


def sb3_a2c(seed: int) -> float:
    model = A2C("MlpPolicy", make_vec_env(TASK, 8, seed=seed), seed=seed, device="cpu")
    return returns_of(sb3_greedy(model.learn(2500 * 5 * 8)))


DQN_STEPS, DQN_ENVS, DQN_WARM = 6_000, 4, 250
"""Steps of each environment; from the `DQN_WARM`th on, each is followed by one gradient step, in ours and in theirs."""
DQN_WIDTHS, DQN_RATE, DQN_BATCH, DQN_TAU = (64, 64), 1e-3, 64, 0.005
DQN_EXPLORED, DQN_EPSILON = 0.2, 0.04
"""Share of the steps over which epsilon falls from 1, and where it stays."""
DQN_RATED = tuple(round(share * DQN_STEPS) for share in (0.6, 0.7, 0.8, 0.9, 1.0))
"""Steps after which the greedy policy is rated: Q-learning swings, and one instant of it says little."""


def dqn(seed: int) -> float:
    torch.manual_seed(seed)
    rng, envs = np.random.default_rng(seed), envs_of(DQN_ENVS)
    network = MlpQNetwork(4, 2, DQN_WIDTHS)
    memory = PrioritizedReplay(50_000, seed=seed, anneal=DQN_STEPS)
    learner = Dqn(network, network.parameters(), memory, DqnSettings(batch=DQN_BATCH, tau=DQN_TAU), rate=DQN_RATE)
    masks = np.ones((DQN_ENVS, 2), dtype=np.bool_)
    returns = NStepReturns(3, shown=False, dtype=np.float32)
    seen, _ = envs.reset(seed=[seed * 100 + place for place in range(DQN_ENVS)])
    ratings = []
    for step in range(1, DQN_STEPS + 1):
        actions = learner.act(seen, masks, max(DQN_EPSILON, 1 - step / (DQN_EXPLORED * DQN_STEPS)), rng)
        following, rewards, terminated, truncated, infos = envs.step(actions)
        after = following.copy()
        for row in np.flatnonzero(terminated | truncated):
            after[row] = infos["final_obs"][row]
        rows = returns.step(
            {"seen": seen, "masks": masks, "actions": actions, "kept": np.ones(DQN_ENVS, dtype=np.bool_)},
            rewards,
            np.where(terminated, 0.0, 0.99),
            {"seen": after, "masks": masks, "is_over": terminated | truncated},
        )
        if rows is not None:
            memory.add(rows)
        seen = following
        if step >= DQN_WARM:
            learner.learn()
        if step in DQN_RATED:
            ratings.append(returns_of(lambda one: int(learner.act(one[None], masks[:1], 0.0, rng)[0]), episodes=10))
    return float(np.mean(ratings))


class Rating(BaseCallback):
    """Rates stable-baselines3's greedy policy at the same steps as ours."""

    def __init__(self) -> None:
        super().__init__()
        self.ratings: list[float] = []

    def _on_step(self) -> bool:
        if self.n_calls in DQN_RATED:
            self.ratings.append(returns_of(sb3_greedy(self.model), episodes=10))
        return True


def sb3_dqn(seed: int) -> float:
    # gradient_steps=1 after each step of all environments: as many gradient steps as in ours, on batches of equal size.
    model = DQN(
        "MlpPolicy", make_vec_env(TASK, DQN_ENVS, seed=seed), learning_rate=DQN_RATE, batch_size=DQN_BATCH,
        buffer_size=50_000, learning_starts=DQN_WARM * DQN_ENVS, tau=DQN_TAU, target_update_interval=DQN_ENVS, train_freq=1,
        gradient_steps=1, exploration_fraction=DQN_EXPLORED, exploration_final_eps=DQN_EPSILON,
        policy_kwargs={"net_arch": list(DQN_WIDTHS)}, seed=seed, device="cpu",
    )  # fmt: skip
    rating = Rating()
    model.learn(DQN_STEPS * DQN_ENVS, callback=rating)
    return float(np.mean(rating.ratings))


def sb3_greedy(model: Any) -> Greedy:
    return lambda seen: int(model.predict(seen, deterministic=True)[0])


@pytest.mark.parametrize(("ours", "theirs"), [(ppo, sb3_ppo), (a2c, sb3_a2c), (dqn, sb3_dqn)])
def test_it_reaches_at_least_the_return_of_stable_baselines3(
    ours: Callable[[int], float], theirs: Callable[[int], float]
) -> None:
    torch.set_num_threads(1)
    mine, others = ([train(seed) for seed in SEEDS] for train in (ours, theirs))
    print(
        f"{ours.__name__}: {np.mean(mine):.0f} {np.round(mine)}, stable-baselines3 {np.mean(others):.0f} {np.round(others)}"
    )
    # The seeds of one have nothing to do with those of the other, so any pairing is as good.
    gain = Mean.of([one - other for one, other in zip(mine, others, strict=True)])
    assert gain.ci95 is not None
    assert gain.mean + gain.ci95 >= 0, "ours is less by more than chance explains"
    # Few seeds have wide intervals, in which much would pass for chance.
    assert np.mean(mine) >= 0.9 * np.mean(others)
    assert np.mean(mine) > 150  # chance alone earns about 20
