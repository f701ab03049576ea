"""Arrays shared by worker processes and their owner: one row for each environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from multiprocessing.context import BaseContext
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from simulator.errors import SettingError

Array = npt.NDArray[Any]
Observation = Array | dict[str, Array]
ELAPSED = "elapsed"
"""Key in a step's info: the number of rounds that passed in it, 0 where time did not advance."""


@dataclass(frozen=True)
class Block:
    """Memory for rows of one shape; it is passed to a worker at its start, where `rows` is a view of it."""

    memory: Any
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, context: BaseContext, rows: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Block:
        """Allocate new memory, all zeros."""
        kind = np.dtype(dtype)
        return cls(context.RawArray("b", rows * prod(shape) * kind.itemsize), (rows, *shape), kind.str)

    def rows(self) -> Array:
        """Return the memory as an array."""
        return np.frombuffer(self.memory, dtype=self.dtype, count=prod(self.shape)).reshape(self.shape)


@dataclass(frozen=True)
class Blocks:
    """All shared arrays. Invariant: a worker writes its rows only between a command and its answer."""

    observations: Mapping[str, Block]
    """Blocks by the observation's key; '' for a plain array."""
    actions: Block
    rewards: Block
    terminated: Block
    truncated: Block
    elapsed: Block
    """NaN where an environment gives none."""
    masks: Block | None

    @classmethod
    def of(cls, context: BaseContext, rows: int, env: gymnasium.Env[Any, Any]) -> Blocks:
        """Allocate for so many environments like this one. Raises SettingError for spaces that are not arrays."""
        masked = env.has_wrapper_attr("action_masks")
        return cls(
            {name: Block.of(context, rows, *form) for name, form in _forms(env.observation_space).items()},
            Block.of(context, rows, *_form(env.action_space, "an action")),
            Block.of(context, rows, (), np.float64),
            Block.of(context, rows, (), np.bool_),
            Block.of(context, rows, (), np.bool_),
            Block.of(context, rows, (), np.float64),
            Block.of(context, rows, _mask_shape(env.action_space), np.bool_) if masked else None,
        )

    def views(self) -> Views:
        """Return the blocks as arrays."""
        return Views(
            {name: block.rows() for name, block in self.observations.items()},
            self.actions.rows(),
            self.rewards.rows(),
            self.terminated.rows(),
            self.truncated.rows(),
            self.elapsed.rows(),
            self.masks.rows() if self.masks is not None else None,
        )


@dataclass(frozen=True)
class Views:
    """Blocks as arrays."""

    observations: dict[str, Array]
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    elapsed: Array
    masks: Array | None

    def put(self, row: int, observation: Observation) -> None:
        """Store the observation of an environment."""
        if isinstance(observation, dict):
            for name, rows in self.observations.items():
                rows[row] = observation[name]
        else:
            self.observations[""][row] = observation

    def observed(self) -> Observation:
        """Return a copy of all observations."""
        if "" in self.observations:
            return self.observations[""].copy()
        return {name: rows.copy() for name, rows in self.observations.items()}


def _forms(space: gymnasium.Space[Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _form(each, f"observation {name!r}") for name, each in space.spaces.items()}
    return {"": _form(space, "an observation")}


def _form(space: gymnasium.Space[Any], what: str) -> tuple[tuple[int, ...], Any]:
    if space.shape is None or space.dtype is None:
        raise SettingError(
            f"{what} is a {type(space).__name__}; environments in processes need arrays of a fixed shape"
        )
    return space.shape, space.dtype


def _mask_shape(space: gymnasium.Space[Any]) -> tuple[int, ...]:
    """Return the shape of `action_masks()`: one entry for each action, dimension after dimension."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return (int(space.nvec.sum()),)
    raise SettingError(f"a {type(space).__name__} action has no masks; leave action_masks out")
