"""Episodes of agents in one environment, on the seeds or traces that all agents get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

import simulator.envs  # noqa: F401 - registers the environments
from policies.learned.training.agents import Agent, Mask
from simulator.errors import SettingError


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an agent."""

    observation: Any
    mask: Mask | None
    """Actions that were possible; None where the environment has no masks."""
    action: Any
    reward: float
    truncated: bool
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Episode:
    """A whole episode."""

    total_reward: float
    steps: int
    truncated: bool
    """It was cut off, so its figures mean little."""
    deviations: int
    """See `Agent.deviations`."""
    outcome: Mapping[str, float]
    """The figures of `headway-sim run`; empty for environments without jobs."""


def make(env: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make the environment of that gymnasium id. Raises SettingError for an unknown id or option."""
    try:
        return gymnasium.make(env, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
        raise SettingError(f"environment {env!r} cannot be made: {error}") from error


def steps(
    env: gymnasium.Env[Any, Any], agent: Agent, seed: int | None, options: dict[str, Any] | None = None
) -> Iterator[Step]:
    """Play one episode from `reset` with that seed and these options of it."""
    seen, _ = env.reset(seed=seed, options=options)
    masks: Callable[[], Mask] | None = getattr(env.unwrapped, "action_masks", None)
    agent.begin(env, seed or 0)
    over = False
    while not over:
        mask = masks() if masks is not None else None
        before = np.array(seen)
        action = agent.act(seen, mask)
        seen, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        yield Step(before, mask, action, float(reward), truncated and not terminated, info)


def play(
    env: gymnasium.Env[Any, Any], agent: Agent, seed: int | None, options: dict[str, Any] | None = None
) -> Episode:
    """Play one episode, and return its sums."""
    total, count, last = 0.0, 0, None
    for last in steps(env, agent, seed, options):
        total += last.reward
        count += 1
    assert last is not None
    return Episode(total, count, last.truncated, agent.deviations, last.info.get("outcome", {}))
