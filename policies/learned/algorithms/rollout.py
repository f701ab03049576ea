"""Rollouts: steps of many environments together, as arrays (steps x environments).

    collector = Collector(envs, steps=128, masked=True)
    collector.restart(seeds)
    rollout = collector.collect(act)      # act(observations, masks) -> {"actions": ..., and other arrays to keep}

Any `gymnasium.vector.VectorEnv` works whose environments begin anew in the step in which they end (SAME_STEP): then every row is a
real step. The last observation of an episode that was cut off is kept, because its value counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from policies.errors import TrainingError

Array: TypeAlias = npt.NDArray[Any]
Flags: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Observations: TypeAlias = Array | dict[str, Array]
"""One array, or several by name, as the space has them; the first axes are those of the batch."""
Act: TypeAlias = Callable[[Observations, Flags | None], Mapping[str, Array]]
"""Chooses actions: observations and masks (or None) -> arrays, `actions` among them, with a row for each environment."""
_MASKS = "action_masks"
_ELAPSED = "elapsed"
"""Key in a step's info for its duration."""
_PLAIN = ""
"""Name of the only array of a plain observation."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode."""

    env: int
    reward: float
    """Sum of the rewards of all its steps."""
    steps: int
    info: Mapping[str, Any]
    """The environment's info at the last step."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A batch. Its arrays are the collector's own: the next `collect` writes over them."""

    observations: Observations
    """Observations before each step."""
    masks: Flags | None
    """Actions that were possible then."""
    actions: Array
    rewards: Floats
    terminated: Flags
    truncated: Flags
    elapsed: Floats | None
    """Duration of each step, in the environments' own unit, 0 where time stood still; None if an environment did not report it."""
    extras: Mapping[str, Array]
    """Other arrays that `act` returned, by name."""
    last_observations: Observations
    """Observations after the last step; in an environment that began anew, the first of the new episode."""
    last_masks: Flags | None
    final_observations: Observations
    """Last observations of episodes that were cut off, in the order of `truncated[t, e]`, row by row (`advantage.values_after`)."""
    final_masks: Flags | None
    """Actions that were possible there; None if environments do not report them (`action_masks` in the last step's info)."""
    episodes: Sequence[Episode]


class Collector:
    """Steps environments and keeps the results.

    Invariant: between two calls `_seen` and `_masks` are the environments' present observations and masks. Episodes continue from
    one batch to the next, unless `restart` ends them all.
    """

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int, *, masked: bool) -> None:
        """`masked`: the environments have `action_masks`. Raises TrainingError for environments that begin anew otherwise."""
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            raise TrainingError(
                f"{type(envs).__name__} has autoreset mode {mode}; make it with autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self.envs = envs
        self.steps = steps
        shape = (steps, envs.num_envs)
        self._is_masked = masked
        self._rewards = np.zeros(shape)
        self._terminated = np.zeros(shape, dtype=np.bool_)
        self._truncated = np.zeros(shape, dtype=np.bool_)
        self._elapsed = np.zeros(shape)
        self._actions = np.zeros((steps, *(envs.action_space.shape or ())), dtype=envs.action_space.dtype)
        self._observations: dict[str, Array] = {}
        """Bound: the names of an observation."""
        self._all_masks: Flags | None = None
        self._extras: dict[str, Array] = {}
        """Bound: the names that the recipe collects, each of `steps` steps."""
        self._seen: Observations | None = None
        self._masks: Flags | None = None
        self._episode_rewards = np.zeros(envs.num_envs)
        self._episode_steps = np.zeros(envs.num_envs, dtype=np.int64)

    def restart(self, seeds: Sequence[int], options: dict[str, Any] | None = None) -> None:
        """Begin new episodes everywhere, with a seed for each environment. Equal seeds give equal results afterwards."""
        # Every vectorized environment takes several seeds, though the base class does not say so.
        self._seen, _ = self.envs.reset(seed=cast(Any, list(seeds)), options=options)
        self._masks = self._masks_now()
        self._episode_rewards[:] = 0.0
        self._episode_steps[:] = 0
        if not self._observations:
            self._observations = {name: _room(self.steps, array) for name, array in _by_name(self._seen).items()}
            self._all_masks = None if self._masks is None else _room(self.steps, self._masks)

    def collect(self, act: Act) -> Rollout:
        """Return the next steps of all environments. Raises TrainingError if an environment leaves no action."""
        if self._seen is None:
            raise TrainingError("no episode has begun: call restart first")
        ends = _Ends([], [], [])
        for step in range(self.steps):
            for name, array in _by_name(self._seen).items():
                self._observations[name][step] = array
            if self._all_masks is not None:
                self._all_masks[step] = self._masks
            self._store(step, act(self._seen, self._masks))
            self._seen, rewards, terminated, truncated, infos = self.envs.step(self._actions[step])
            self._masks = self._masks_now()
            self._rewards[step], self._terminated[step], self._truncated[step] = rewards, terminated, truncated
            self._elapsed[step] = durations(infos, self.envs.num_envs)
            self._episode_rewards += rewards
            self._episode_steps += 1
            if (over := terminated | truncated).any():
                self._end(np.flatnonzero(over), truncated, infos, ends)
        return self._rollout(ends)

    def _store(self, step: int, chosen: Mapping[str, Array]) -> None:
        for name, array in chosen.items():
            if name == "actions":
                self._actions[step] = array
                continue
            if name not in self._extras:
                self._extras[name] = _room(self.steps, array)
            self._extras[name][step] = array

    def _end(self, rows: npt.NDArray[np.intp], truncated: Flags, infos: Mapping[str, Any], ends: _Ends) -> None:
        for row in rows.tolist():
            info = _of_row(infos.get("final_info", {}), row)
            ends.episodes.append(Episode(row, float(self._episode_rewards[row]), int(self._episode_steps[row]), info))
            if truncated[row]:
                # Copies: an environment may use the array again for its next observation.
                last = _by_name(infos["final_obs"][row])
                ends.observations.append({name: np.array(array) for name, array in last.items()})
                ends.masks.append(info.get(_MASKS))
        self._episode_rewards[rows] = 0.0
        self._episode_steps[rows] = 0

    def _rollout(self, ends: _Ends) -> Rollout:
        assert self._seen is not None
        final = {
            name: np.array([each[name] for each in ends.observations], dtype=array.dtype).reshape(-1, *array.shape[2:])
            for name, array in self._observations.items()
        }
        reported = self._is_masked and all(mask is not None for mask in ends.masks)
        return Rollout(
            observations=_as_given(self._observations),
            masks=self._all_masks,
            actions=self._actions,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            elapsed=None if np.isnan(self._elapsed).any() else self._elapsed,
            extras=self._extras,
            last_observations=self._seen,
            last_masks=self._masks,
            final_observations=_as_given(final),
            final_masks=np.array(ends.masks, dtype=np.bool_) if reported and ends.masks else None,
            episodes=ends.episodes,
        )

    def _masks_now(self) -> Flags | None:
        if not self._is_masked:
            return None
        # Vectorized environments in processes give all masks at once; others give them one by one.
        ask = getattr(self.envs, _MASKS, None)
        masks = cast(Flags, ask()) if ask else np.array(cast(Any, self.envs).call(_MASKS), dtype=np.bool_)
        if not (possible := masks.any(axis=1)).all():
            raise TrainingError(
                f"environment {int(np.argmin(possible))} leaves no action at all; its action_masks must allow one, such as to wait"
            )
        return masks


@dataclass(frozen=True, slots=True)
class _Ends:
    """Finished episodes of one batch; the last two lists have an entry for each episode that was cut off."""

    episodes: list[Episode]
    observations: list[dict[str, Array]]
    masks: list[Flags | None]


def durations(infos: Mapping[str, Any], envs: int) -> Floats:
    """Return each environment's duration of the step, also of one that ended in it; NaN if it reported none."""
    elapsed = np.full(envs, np.nan)
    for info in (infos, infos.get("final_info", {})):
        if _ELAPSED in info:
            reported = info[f"_{_ELAPSED}"]
            elapsed[reported] = info[_ELAPSED][reported]
    return elapsed


def _room(steps: int, array: Array) -> Array:
    """Return an array of zeros with room for `steps` arrays like this one."""
    return np.zeros((steps, *array.shape), array.dtype)


def _by_name(observations: Observations) -> dict[str, Array]:
    return observations if isinstance(observations, dict) else {_PLAIN: observations}


def _as_given(arrays: dict[str, Array]) -> Observations:
    return arrays.get(_PLAIN, arrays)


def _of_row(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return the info of one environment, from gymnasium's arrays of all."""
    info = {}
    for name, value in infos.items():
        there = infos.get(f"_{name}")
        if there is not None and there[row]:
            info[name] = _of_row(value, row) if isinstance(value, dict) else value[row]
    return info
