"""Agents that act in gymnasium environments, one action at a time.

A `Policy` decides on a `ClusterState`; an `Agent` sees the observations of an environment. Figures of both are comparable where
both act on the same traces: `SimulationBackend.validate` and `compare` take either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from policies.api import Policy
from policies.errors import TrainingError

if TYPE_CHECKING:
    import gymnasium

Mask: TypeAlias = npt.NDArray[np.bool_]
Logits: TypeAlias = Callable[[Any, Any], Any]
"""A network: from a batch of observations and of masks (tensors; None: all actions are possible) to logits or Q of all actions."""


class Agent(Protocol):
    """Acts in an environment. Invariant: equal weights, seeds and environments give equal actions."""

    @property
    def deviations(self) -> int:
        """Number of actions of this episode that differ from the decisions that they carry out; 0 for an agent that chooses
        actions."""

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Begin an episode, after the environment's `reset`. Raises an error for an environment in which it cannot act."""

    def act(self, observation: Any, mask: Mask | None) -> Any:
        """Return the next action. The mask says which are possible; None: all are."""


@dataclass(frozen=True, slots=True)
class AgentInEnvironment:
    """An agent, and the environment that it is made for."""

    agent: Agent
    env: str
    """Gymnasium's id."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The environment's options, except traces, cluster, slowdown and profiles."""
    needs: tuple[str, ...] = ()
    """Names of the options without which observations or actions have another meaning; rewards do not count."""


Scheduler: TypeAlias = Policy | AgentInEnvironment
"""Schedules the jobs of a trace: a policy, or an agent in its environment."""


class NetworkAgent:
    """Takes the action with the highest logit, or Q, among the possible ones."""

    deviations = 0

    def __init__(self, network: Logits, shape: tuple[int, ...]) -> None:
        """Use that network, on the CPU, on observations of that shape."""
        self._network = network
        self._shape = shape

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Check the environment's observations. Raises TrainingError for those of another cluster."""
        if env.observation_space.shape != self._shape:
            raise TrainingError(
                f"the agent was trained on observations of shape {self._shape}, and the environment's have "
                f"{env.observation_space.shape}; give the cluster of its training, or train an agent for this one"
            )

    def act(self, observation: Any, mask: Mask | None) -> int:
        """Return the likeliest action."""
        import torch

        possible = None if mask is None else torch.from_numpy(np.asarray(mask)[None])
        with torch.inference_mode():
            scores = self._network(torch.from_numpy(np.asarray(observation)[None]), possible)[0].numpy()
        return int(np.argmax(scores if mask is None else np.where(mask, scores, -np.inf)))


class UniformAgent:
    """Takes a random action, each possible one equally often: the control that a learned agent has to beat."""

    deviations = 0

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._space: gymnasium.Space[Any]

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Begin to draw from that seed."""
        self._rng = np.random.default_rng((seed, 0x756E69))
        self._space = env.action_space
        self._space.seed(seed)

    def act(self, observation: Any, mask: Mask | None) -> Any:  # noqa: ARG002 - the protocol
        """Return a random action."""
        return self._space.sample() if mask is None else int(self._rng.choice(np.flatnonzero(mask)))
