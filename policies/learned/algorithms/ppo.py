"""Proximal policy optimization.

Source: Schulman et al., "Proximal policy optimization algorithms" (2017).

    collect: `steps` steps of all environments, with actions drawn from the policy
    advantages: generalized advantage estimation                                     (equation 11)
    `epochs` times, in minibatches: a gradient step on
        - L_clip + value_weight L_value - entropy_weight H                           (equation 9)
        L_clip = mean of min(ratio A, clip(ratio, 1 - c, 1 + c) A)                   (equation 7)

Advantages are normalized in each minibatch. A row in which only one action is possible has a value to learn, but no choice: it has
no part in L_clip and in the entropy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from policies.errors import TrainingError
from policies.learned.algorithms.advantage import discounts, gae
from policies.learned.algorithms.distribution import Categorical, DistributionOf
from policies.learned.algorithms.losses import clipped_surrogate, descend
from policies.learned.algorithms.networks import ActorCritic, rows_of, tensors, values_after_steps
from policies.learned.algorithms.rollout import Array, Flags, Observations, Rollout

LOSSES = ("policy_loss", "value_loss", "entropy", "kl", "clipped")


@dataclass(frozen=True, kw_only=True)
class PpoSettings:
    """Hyper-parameters; the defaults are stable-baselines3's."""

    gamma: float = 0.99
    """Discount of a step, or of a unit of time if `by_time`."""
    by_time: bool = False
    """Discount by the time that a step took (`Rollout.elapsed`): a semi-Markov decision process (`advantage.discounts`)."""
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    epochs: int = 10
    """Passes over a batch."""
    minibatch: int = 64
    """Rows in a gradient step."""
    entropy_weight: float = 0.0
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    """Norm at which gradients are clipped."""


class Ppo:
    """Chooses actions and learns from rollouts.

    Invariant: network, optimizer, the state of `rng` and the input determine all that follows.
    """

    def __init__(
        self,
        network: ActorCritic,
        optimizer: torch.optim.Optimizer,
        settings: PpoSettings,
        rng: torch.Generator,
        distribution: DistributionOf = Categorical,
    ) -> None:
        """`rng` draws actions and shuffles rows."""
        self.network = network
        self.settings = settings
        self._optimizer = optimizer
        self._rng = rng
        self._distribution = distribution

    def act(self, seen: Observations, masks: Flags | None) -> dict[str, Array]:
        """Draw an action for each environment; return it with its log-probability and the value of the observation."""
        with torch.inference_mode():
            logits, values = self.network(tensors(seen))
            distribution = self._distribution(logits, None if masks is None else tensors(masks))
            actions = distribution.sample(self._rng)
            return {
                "actions": actions.numpy(),
                "log_probs": distribution.log_prob(actions).numpy(),
                "values": values.numpy(),
            }

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from a batch that `act` has chosen the actions of. Returns the mean losses."""
        advantages, returns = self.advantages(rollout)
        rows = rows_of(rollout) | {
            "log_probs": tensors(rollout.extras["log_probs"]).flatten(),
            "advantages": torch.as_tensor(advantages, dtype=torch.float32).flatten(),
            "returns": torch.as_tensor(returns, dtype=torch.float32).flatten(),
        }
        losses: list[tuple[float, ...]] = []
        for _ in range(self.settings.epochs):
            parts = minibatches(torch.randperm(len(rows["returns"]), generator=self._rng), self.settings.minibatch)
            losses.extend(self._learn({name: tensor[chosen] for name, tensor in rows.items()}) for chosen in parts)
        return dict(zip(LOSSES, np.mean(losses, axis=0).tolist(), strict=True))

    def advantages(self, rollout: Rollout) -> tuple[Array, Array]:
        """Return generalized advantages and returns (steps x environments). Raises TrainingError if time is missing."""
        settings = self.settings
        factors: float | Array = settings.gamma
        scale: float | Array = 1.0
        if settings.by_time:
            if rollout.elapsed is None:
                raise TrainingError(
                    "an environment does not report how long a step took; its info must have elapsed, in rounds"
                )
            factors, scale = discounts(rollout.elapsed, settings.gamma)
        return gae(
            scale * rollout.rewards,
            rollout.extras["values"],
            values_after_steps(self.network, rollout),
            rollout.terminated,
            rollout.truncated,
            gamma=factors,
            lam=settings.gae_lambda,
        )

    def _learn(self, rows: Mapping[str, Tensor]) -> tuple[float, ...]:
        """Make one gradient step. Returns the losses."""
        settings = self.settings
        logits, values = self.network(rows["seen"])
        distribution = self._distribution(logits, rows.get("masks"))
        choices = distribution.has_choice.float()
        share = choices / choices.sum().clamp(min=1.0)
        log_probs, advantages = distribution.log_prob(rows["actions"]), normalized(rows["advantages"], share)
        terms = clipped_surrogate(log_probs, rows["log_probs"], advantages, settings.clip_range)
        policy_loss = -(share * terms.objective).sum()
        # In units of how much returns differ: rewards have any unit, and weights of losses then mean the same for all.
        value_loss = (values - rows["returns"]).square().mean() / spread(rows["returns"])
        entropy = (share * distribution.entropy()).sum()
        loss = policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy
        descend(loss, self._optimizer, self.network.parameters(), settings.max_grad_norm)
        kl, cut = (share * terms.kl).sum(), (share * terms.is_clipped).sum()
        return tuple(float(each.detach()) for each in (policy_loss, value_loss, entropy, kl, cut))


def minibatches(rows: Tensor, size: int) -> list[Tensor]:
    """Divide the rows into minibatches of that size; a single row at the end has no spread, and joins those before it."""
    parts = list(torch.split(rows, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def spread(returns: Tensor) -> Tensor:
    """Return the variance of returns, more than 0; 1 for a single one, which has none."""
    return returns.var() + 1e-8 if len(returns) > 1 else torch.ones(())


def normalized(advantages: Tensor, share: Tensor) -> Tensor:
    """Return advantages with mean 0 and deviation 1, each row weighted by its share (they add up to 1)."""
    mean = (share * advantages).sum()
    return (advantages - mean) / ((share * (advantages - mean).square()).sum().sqrt() + 1e-8)
