"""Advantage actor-critic: on fresh rollouts (A2C), or with replay.

Sources: Mnih et al., "Asynchronous methods for deep reinforcement learning", ICML 2016 (the loss; A2C is its synchronous form);
Peng et al., "DL2: a deep learning-driven scheduler for deep learning clusters", section 4.3 (rows from a replay memory).

    policy loss   - mean of log pi(a | s) (R - V(s))          R - V(s), the advantage, is taken as constant
    value loss      mean of (V(s) - R)^2
    loss          = policy loss + value_weight value loss - entropy_weight H

The return R is an n-step one (A2C), or r + gamma V(s') of one row (replay). With replay the rows were chosen by earlier policies,
and no correction is made for that, as in the paper; entropy and a small learning rate keep the policies near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.learned.algorithms.advantage import gae
from policies.learned.algorithms.distribution import Categorical, DistributionOf
from policies.learned.algorithms.losses import actor_critic_losses, descend
from policies.learned.algorithms.networks import ActorCritic, rows_of, tensors, values_after_steps
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.algorithms.rollout import Array, Flags, Observations, Rollout

LOSSES = ("policy_loss", "value_loss", "entropy")


@dataclass(frozen=True, kw_only=True)
class ActorCriticSettings:
    """Hyper-parameters; the defaults are stable-baselines3's of A2C."""

    gamma: float = 0.99
    """Discount of a step."""
    gae_lambda: float = 1.0
    """1: the n-step return to the end of the rollout. Without replay only."""
    entropy_weight: float = 0.0
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    """Norm at which gradients are clipped."""
    value_baseline: bool = True
    """Learn from rows by r + gamma V(s') - V(s); False: by r less the moving average of rewards, without a value network."""
    average_decay: float = 0.99
    """Weight of the earlier average at each step, where rewards are compared with their average."""


class MovingAverage:
    """Exponential moving average, kept with a training. Invariant: 0 before the first number, else within the numbers' range."""

    def __init__(self) -> None:
        self._value, self._count = 0.0, 0

    def of(self, number: float, decay: float) -> float:
        """Take one more number; return the average."""
        self._value = decay * self._value + (1.0 - decay) * number if self._count else number
        self._count += 1
        return self._value

    def state_dict(self) -> dict[str, float]:
        """Return all that it needs to go on."""
        return {"value": self._value, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go on from such a state."""
        self._value, self._count = float(state["value"]), int(state["count"])


class AdvantageActorCritic:
    """Chooses actions and learns. Invariant: network, optimizer, the state of `rng` and the input determine all that follows."""

    def __init__(
        self,
        network: ActorCritic,
        optimizer: torch.optim.Optimizer,
        settings: ActorCriticSettings,
        rng: torch.Generator,
        distribution: DistributionOf = Categorical,
        values: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`rng` draws actions. `values` computes the network's values without its logits; None: the network as a whole does."""
        self.network = network
        self._values = values or (lambda seen: network(seen)[1])
        self.settings = settings
        self.average = MovingAverage()
        """Average of rewards; changed only where it is the baseline."""
        self._optimizer = optimizer
        self._rng = rng
        self._distribution = distribution

    def act(self, seen: Observations, masks: Flags | None) -> dict[str, Array]:
        """Draw an action for each environment; return it with the value of the observation."""
        with torch.inference_mode():
            logits, values = self.network(tensors(seen))
            distribution = self._distribution(logits, None if masks is None else tensors(masks))
            return {"actions": distribution.sample(self._rng).numpy(), "values": values.numpy()}

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Make one gradient step on a whole rollout that `act` has chosen the actions of (A2C). Returns the losses."""
        _, returns = gae(
            rollout.rewards,
            rollout.extras["values"],
            values_after_steps(self.network, rollout),
            rollout.terminated,
            rollout.truncated,
            gamma=self.settings.gamma,
            lam=self.settings.gae_lambda,
        )
        return self._learn(rows_of(rollout), torch.as_tensor(returns, dtype=torch.float32).flatten())

    def update_from(self, memory: PrioritizedReplay, batch: int) -> dict[str, float]:
        """Make one gradient step on rows of a memory. Returns the losses.

        A row has `seen`, `actions`, `rewards`, `next_seen`, `terminated` (bool), and `masks` where actions can be impossible.
        The memory's alpha should be 0, so that all rows are equally likely: weights are not applied.
        """
        return self.update_on(memory.sample(batch).rows)

    def update_on(self, columns: Mapping[str, Array]) -> dict[str, float]:
        """Make one gradient step on these rows, whose names are those of `update_from`. Returns the losses."""
        rows = {name: torch.from_numpy(np.require(column, requirements=("C", "W"))) for name, column in columns.items()}
        if not self.settings.value_baseline:
            return self._learn_from_rewards(rows)
        with torch.no_grad():
            following = self._values(rows["next_seen"]).masked_fill(rows["terminated"], 0.0)
            returns = rows["rewards"].float() + self.settings.gamma * following
        return self._learn(rows, returns)

    def _learn_from_rewards(self, rows: Mapping[str, Tensor]) -> dict[str, float]:
        """Make a gradient step of the policy network alone, with the average of rewards in place of values."""
        rewards = rows["rewards"].float()
        average = self.average.of(float(rewards.mean()), self.settings.average_decay)
        return self._learn(rows, rewards, torch.full_like(rewards, average))

    def _learn(self, rows: Mapping[str, Tensor], returns: Tensor, baseline: Tensor | None = None) -> dict[str, float]:
        settings = self.settings
        logits, values = self.network(rows["seen"])
        distribution = self._distribution(logits, rows.get("masks"))
        losses = actor_critic_losses(distribution, rows["actions"], values, returns, baseline)
        loss = losses.policy + settings.value_weight * losses.value - settings.entropy_weight * losses.entropy
        descend(loss, self._optimizer, self.network.parameters(), settings.max_grad_norm)
        return dict(zip(LOSSES, (float(each.detach()) for each in losses), strict=True))
