"""stable-baselines3's rollout buffer, with rewards discounted by time instead of by steps.

A step of these environments takes no time, one unit (such as a round), or many. In a step of n units `gamma` discounts what follows
by gamma^n, and the reward, which is spread evenly over these units, by the mean of 1, gamma, ..., gamma^(n - 1). Where each step
takes one unit, this is stable-baselines3's own buffer.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from torch import Tensor

from policies.learned.algorithms.advantage import discounts, gae


class Clock(Protocol):
    """The environments' last step."""

    elapsed: npt.NDArray[np.float64]
    """Duration for each environment, in units."""
    rewards: npt.NDArray[np.float32]
    """Rewards for each environment, without the value of what follows an episode that was cut off."""


class TimedRolloutBuffer(MaskableRolloutBuffer):
    """Computes advantages with a discount for each step. Invariant: entry t of `durations` is the time that step t took."""

    def __init__(self, *args: Any, clock: Clock, **kwargs: Any) -> None:
        self._clock = clock
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self.durations = np.zeros((self.buffer_size, self.n_envs))

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add the environments' last step. Rewards contain gamma times the value of what follows an episode that was cut off."""
        seen, actions, rewards, *others = args
        discount, weight = self._discounts(self._clock.elapsed)
        following = (rewards - self._clock.rewards) / self.gamma
        self.durations[self.pos] = self._clock.elapsed
        super().add(seen, actions, self._clock.rewards * weight + discount * following, *others, **kwargs)

    def compute_returns_and_advantage(self, last_values: Tensor, dones: npt.NDArray[np.bool_]) -> None:
        """Compute advantages and returns."""
        last = last_values.clone().cpu().numpy().flatten()
        ended = np.concatenate([self.episode_starts[1:], dones[None]]).astype(np.bool_)
        advantages, returns = gae(
            self.rewards,
            self.values,
            np.concatenate([self.values[1:], last[None]]),
            terminated=ended,
            truncated=np.zeros_like(ended),
            gamma=self._discounts(self.durations)[0],
            lam=self.gae_lambda,
        )
        self.advantages, self.returns = advantages.astype(np.float32), returns.astype(np.float32)

    def _discounts(self, elapsed: npt.NDArray[np.float64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the discount after steps that took so long, and the weight of their rewards, 1 in a step of one unit."""
        discount, weight = discounts(elapsed, self.gamma)
        return discount, weight / discounts(np.ones(1), self.gamma)[1]
