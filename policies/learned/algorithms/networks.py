"""Networks: what the algorithms require of them, and plain ones for small tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from policies.learned.algorithms.advantage import Floats, values_after
from policies.learned.algorithms.distribution import IMPOSSIBLE
from policies.learned.algorithms.rollout import Observations, Rollout


class ActorCritic(Protocol):
    """Observations (B, ...) -> logits of all actions (B, n) or (B, D, n), nothing masked, and values (B)."""

    def __call__(self, seen: Any, /) -> tuple[Tensor, Tensor]:
        """Return logits and values."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that are trained."""


class QFunction(Protocol):
    """Observations (B, ...) and masks (B, n) -> Q of all actions (B, n), IMPOSSIBLE where they are masked."""

    def q_values(self, seen: Tensor, masks: Tensor) -> Tensor:
        """Return Q."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """Return all parameters."""

    def state_dict(self) -> dict[str, Any]:
        """Return all weights by name."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> Any:
        """Set all weights to these."""


class MlpActorCritic(nn.Module):
    """Two multilayer perceptrons with tanh, one for logits and one for values, with orthogonal initial weights."""

    def __init__(self, inputs: int, actions: int | tuple[int, int], hidden: Sequence[int] = (64, 64)) -> None:
        """`actions` is n, or (D, n) where an action has D parts. `hidden` has the width of each hidden layer."""
        super().__init__()
        self._shape = (actions,) if isinstance(actions, int) else actions
        self.actor = perceptron((inputs, *hidden, int(np.prod(self._shape))), nn.Tanh, last_gain=0.01)
        self.critic = perceptron((inputs, *hidden, 1), nn.Tanh, last_gain=1.0)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, n) or (B, D, n), and values (B)."""
        return self.actor(seen).unflatten(1, self._shape), self.critic(seen).squeeze(1)


class MlpQNetwork(nn.Module):
    """A multilayer perceptron with ReLU from observations to Q; dueling if asked for (Wang et al. 2016)."""

    def __init__(self, inputs: int, actions: int, hidden: Sequence[int] = (64, 64), *, dueling: bool = True) -> None:
        super().__init__()
        self.body = perceptron((inputs, *hidden), nn.ReLU, last_gain=2.0**0.5)
        self.advantage = nn.Linear(hidden[-1], actions)
        self.value = nn.Linear(hidden[-1], 1) if dueling else None

    def q_values(self, seen: Tensor, masks: Tensor) -> Tensor:
        """Return Q (B, n)."""
        body = torch.relu(self.body(seen))
        gains: Tensor = self.advantage(body)
        if self.value is None:
            return gains.masked_fill(~masks, IMPOSSIBLE)
        return dueling_q(self.value(body), gains, masks)


def dueling_q(value: Tensor, advantages: Tensor, masks: Tensor) -> Tensor:
    """Return Q = V + A - mean A, the mean over possible actions.

    Source: Wang et al., "Dueling network architectures for deep reinforcement learning", ICML 2016, equation 9. Shapes: value
    (B, 1), advantages and masks (B, n). Impossible actions have Q = IMPOSSIBLE.
    """
    mean = (advantages * masks).sum(1, keepdim=True) / masks.sum(1, keepdim=True).clamp(min=1)
    return (value + advantages - mean).masked_fill(~masks, IMPOSSIBLE)


def perceptron(widths: Sequence[int], activation: Callable[[], nn.Module], *, last_gain: float) -> nn.Sequential:
    """Return linear layers of these widths with the activation between them; the last one has none."""
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        layer = nn.Linear(inputs, outputs)
        is_last = place == len(widths) - 2
        nn.init.orthogonal_(layer.weight, last_gain if is_last else 2.0**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer] if is_last else [layer, activation()]
    return nn.Sequential(*layers)


def tensors(arrays: Observations) -> Any:
    """Return arrays as tensors that share their memory: one, or several by name."""
    if isinstance(arrays, Mapping):
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return torch.from_numpy(np.ascontiguousarray(arrays))


def values_after_steps(network: ActorCritic, rollout: Rollout) -> Floats:
    """Return the network's values of the states that the steps of a rollout led to (steps x environments)."""
    with torch.no_grad():
        last = network(tensors(rollout.last_observations))[1].numpy()
        final = last[:0]
        if rollout.truncated.any():
            final = network(tensors(rollout.final_observations))[1].numpy()
    return values_after(rollout.extras["values"], last, rollout.truncated, final)


def rows_of(rollout: Rollout) -> dict[str, Tensor]:
    """Return observations, actions, and masks if there are any, with a row for each step of each environment."""
    rows = {"seen": tensors(rollout.observations).flatten(0, 1), "actions": tensors(rollout.actions).flatten(0, 1)}
    if rollout.masks is not None:
        rows["masks"] = tensors(rollout.masks).flatten(0, 1)
    return rows
