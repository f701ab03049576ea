"""A small environment for training: keep a ball on a beam. Actions are masked, and episodes terminate or are truncated."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Array = npt.NDArray[np.float32]
CUT_AFTER = 25


class Beam(gymnasium.Env[Array, np.int64]):
    """Actions: push left, do nothing, push right. At the ends of the beam it cannot be pushed outwards."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, tells_masks: bool = False) -> None:
        self.tells_masks = tells_masks
        self.seen = np.zeros(2, dtype=np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        # The same array again and again: a caller that keeps an observation has to copy it.
        self.seen[:] = self.np_random.uniform(-0.5, 0.5, 2)
        self.steps = 0
        return self.seen, {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert self.action_masks()[action], "an action that is not possible"
        self.steps += 1
        push = 0.1 * (int(action) - 1) + self.np_random.normal(0.0, 0.02)
        self.seen[1] += push + 0.05 * self.seen[0]
        self.seen[0] += self.seen[1]
        terminated = bool(abs(self.seen[0]) > 1.0)
        truncated = self.steps == CUT_AFTER
        info: dict[str, Any] = {}
        if terminated or truncated:
            info["outcome"] = {"steps": self.steps}
            if self.tells_masks:
                info["action_masks"] = self.action_masks()
        return self.seen, 1.0 - abs(float(self.seen[0])), terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        return np.array([self.seen[0] > -0.8, True, self.seen[0] < 0.8])


def beams(
    count: int, autoreset: AutoresetMode = AutoresetMode.SAME_STEP, *, tells_masks: bool = False
) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Beam(tells_masks)] * count, autoreset_mode=autoreset)
