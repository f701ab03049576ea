"""Many environments of RL-TAPS in one process, which step together as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from simulator.errors import SettingError
from simulator.papers.rl_taps.env import OUTCOME, Actions, RlTapsEnv, World
from simulator.papers.rl_taps.image import Image
from simulator.papers.rl_taps.outcome import outcome

Stepped = tuple[Image, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]


class RlTapsVectorEnv(VectorEnv[Image, Actions, Any]):
    """Environments that do the same as as many RlTapsEnv. Invariant: row r of every batch belongs to environment r, and equal seeds
    give equal episodes."""

    metadata: dict[str, Any] = RlTapsEnv.metadata

    def __init__(
        self, num_envs: int = 1, *, autoreset: AutoresetMode = AutoresetMode.NEXT_STEP, workers: int = 0, **options: Any
    ) -> None:
        """`workers` must be 0: one process steps dozens of environments faster than it could wake up others.

        Raises SettingError.
        """
        if num_envs < 1 or workers:
            raise SettingError(
                f"{num_envs} environments in {workers} workers are impossible; give at least 1, and no workers"
            )
        if autoreset == AutoresetMode.DISABLED:
            raise SettingError("autoreset is DISABLED; give NEXT_STEP or SAME_STEP")
        self._world = World(options)
        self.options = self._world.options
        self.batch = self._world.batch(num_envs)
        self.num_envs = num_envs
        self.metadata = {**self.metadata, "autoreset_mode": autoreset}
        self.single_observation_space, self.single_action_space = self._world.spaces(self.batch)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._same_step = autoreset == AutoresetMode.SAME_STEP
        self._sources = [np.random.default_rng(0)] * num_envs
        self._ended = np.ones(num_envs, dtype=np.bool_)
        self._has_begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, dict[str, Any]]:
        """Begin an episode in every environment; environment r gets the seed `seed + r`, or the r-th of several seeds. The options
        are those of RlTapsEnv, for all of them."""
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            seeds = [int(seed) + row for row in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise SettingError(f"there are {len(seeds)} seeds for {self.num_envs} environments; give one for each")
        for row, its in enumerate(seeds):
            if its is not None or not self._has_begun:
                self._sources[row], _ = seeding.np_random(its)
            self.batch.begin(row, self._world.jobs(self._sources[row], options or {}))
        self._has_begun = True
        self._ended[:] = False
        return self.batch.images(), {}

    def step(self, actions: npt.ArrayLike) -> Stepped:
        """Apply the action of every environment (environments, GPUs)."""
        if not self._has_begun:
            raise gymnasium.error.ResetNeeded("no episode has begun: call reset")
        batch, begins = self.batch, self._ended.copy()
        rewards = batch.step(np.asarray(actions))
        terminated = batch.is_done & ~begins
        truncated = batch.is_late & ~terminated & ~begins
        infos: dict[str, Any] = {}
        over = np.flatnonzero(terminated | truncated).tolist()
        if self._same_step:
            if over:
                last = batch.images()
            for row in over:
                infos = self._add_info(
                    infos, {"final_obs": last[row], "final_info": {OUTCOME: outcome(batch, row)}}, row
                )
                self._begin(row)
        else:
            for row in over:
                infos = self._add_info(infos, {OUTCOME: outcome(batch, row)}, row)
            for row in np.flatnonzero(begins).tolist():
                self._begin(row)
                rewards[row] = 0.0
            self._ended = terminated | truncated
        return batch.images(), rewards, terminated, truncated, infos

    def _begin(self, row: int) -> None:
        self.batch.begin(row, self._world.jobs(self._sources[row], {}))
