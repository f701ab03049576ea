"""Rewards in stable-baselines3's rollouts are discounted by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is another engine, and not needed otherwise")

import gymnasium  # noqa: E402
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer  # noqa: E402

from policies.learned.training.sb3_buffer import TimedRolloutBuffer  # noqa: E402

GAMMA, LAMBDA, STEPS = 0.9, 0.8, 6
SPACES = (gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32), gymnasium.spaces.Discrete(2))


@dataclass
class LastStep:
    elapsed: Any
    rewards: Any


def filled(kind: type[MaskableRolloutBuffer], durations: Any, rewards: Any, following: Any, **options: Any) -> Any:
    """Return a buffer of one environment; `following` has gamma x value of what follows episodes that were cut off, which
    begin anew in the next step."""
    last = LastStep(np.ones(1), np.zeros(1))
    if kind is TimedRolloutBuffer:
        options["clock"] = last
    buffer = kind(STEPS, *SPACES, gamma=GAMMA, gae_lambda=LAMBDA, n_envs=1, **options)
    buffer.reset()
    starts = np.zeros(1)
    for step in range(STEPS):
        last.elapsed, last.rewards = np.array([durations[step]]), np.array([rewards[step]], dtype=np.float32)
        seen, value = np.zeros((1, 1)), torch.tensor([float(step)])
        buffer.add(seen, np.zeros((1, 1)), last.rewards + following[step], starts, value, torch.zeros(1))
        starts = np.array([float(following[step] != 0)])
    buffer.compute_returns_and_advantage(torch.tensor([10.0]), np.array([False]))
    return buffer


def test_with_steps_of_one_unit_it_is_the_engine_s_own() -> None:
    rewards, following = [1.0, -2.0, 0.5, 3.0, 0.0, 1.0], [0.0, 0.0, GAMMA * 7.0, 0.0, 0.0, 0.0]
    ours = filled(TimedRolloutBuffer, [1.0] * STEPS, rewards, following)
    theirs = filled(MaskableRolloutBuffer, [1.0] * STEPS, rewards, following)
    np.testing.assert_allclose(ours.advantages, theirs.advantages, rtol=1e-6)
    np.testing.assert_allclose(ours.returns, theirs.returns, rtol=1e-6)


def test_a_step_discounts_what_follows_by_the_time_that_it_took() -> None:
    durations = [0.0, 3.0, 0.0, 2.0, 1.0, 5.0]
    rewards = [0.0, 6.0, 0.0, 2.0, 1.0, 5.0]
    found = filled(TimedRolloutBuffer, durations, rewards, [0.0] * STEPS)
    values, advantage = [*map(float, range(STEPS)), 10.0], 0.0
    for step in reversed(range(STEPS)):
        units = int(durations[step])
        # The reward in equal parts, one in each unit.
        reward = sum(rewards[step] / units * GAMMA**unit for unit in range(units))
        discount = GAMMA**units
        advantage = reward + discount * values[step + 1] - values[step] + discount * LAMBDA * advantage
        assert found.advantages[step, 0] == pytest.approx(advantage, rel=1e-5)
        assert found.returns[step, 0] == pytest.approx(advantage + values[step], rel=1e-5)


def test_the_value_of_what_follows_a_cut_is_discounted_by_time_too() -> None:
    durations, following = [1.0, 1.0, 4.0, 1.0, 1.0, 1.0], [0.0, 0.0, GAMMA * 7.0, 0.0, 0.0, 0.0]
    found = filled(TimedRolloutBuffer, durations, [0.0] * STEPS, following)
    assert found.advantages[2, 0] == pytest.approx(GAMMA**4 * 7.0 - 2.0, rel=1e-5)
