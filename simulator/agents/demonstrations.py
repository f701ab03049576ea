"""Demonstrations: a teacher's decisions as (observation, action, mask) for `policies.learned.algorithms.imitation`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from policies.api import Policy
from policies.learned.training.agents import Agent
from simulator.agents.episodes import Episode, Step, steps
from simulator.agents.policy_agent import PolicyAgent


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Rows of all episodes, in order. Invariant: the arrays have equal lengths, and every action is possible by its mask."""

    observations: npt.NDArray[Any]
    actions: npt.NDArray[np.int64]
    masks: npt.NDArray[np.bool_]
    episodes: tuple[Episode, ...]

    def __len__(self) -> int:
        return len(self.actions)

    def rows(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by the names that `Imitation.update` reads; it takes them as tensors."""
        return {"seen": self.observations, "actions": self.actions, "masks": self.masks}


def demonstrate(
    env: gymnasium.Env[Any, Any], teacher: Policy, seeds: Iterable[int], *, exact: bool = True
) -> Demonstrations:
    """Let a policy act in the environment, one episode for each seed; keep what it saw and did.

    Raises SettingError for an environment without a mapping from decisions to actions, and with `exact` DecisionError for a
    decision that its actions cannot express. Without `exact` the nearest action is taken, and shown.
    """
    return demonstrations_of(env, PolicyAgent(teacher, exact=exact), seeds)


def demonstrations_of(env: gymnasium.Env[Any, Any], agent: Agent, seeds: Iterable[int]) -> Demonstrations:
    """Let an agent act in the environment, one episode for each seed; keep what it saw and did."""
    kept: list[Step] = []
    episodes = []
    for seed in seeds:
        own = list(steps(env, agent, seed))
        kept += own
        total = sum(step.reward for step in own)
        episodes.append(Episode(total, len(own), own[-1].truncated, agent.deviations, own[-1].info.get("outcome", {})))
    return Demonstrations(
        np.array([step.observation for step in kept]),
        np.array([step.action for step in kept], dtype=np.int64),
        np.array([step.mask for step in kept], dtype=np.bool_),
        tuple(episodes),
    )
