"""REINFORCE with a baseline for each time step.

Sources: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning" (1992); the baseline:
Mao et al., "Resource management with deep reinforcement learning" (HotNets 2016), algorithm 1, which RL-TAPS adopts.

    play E episodes of one sequence of jobs                       same sequence, other actions
    v_t^i = sum over s >= t of gamma^(s - t) r_s^i                return of episode i from step t on
    b_t   = mean over i of v_t^i                                  baseline of step t; an episode that has ended has v = 0
    gradient step along the sum over i, t of grad log pi(a_t^i | s_t^i) (v_t^i - b_t)

Episodes of the same sequence meet the same jobs at the same step, so the mean of their returns is a good baseline, and needs no
network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.distribution import Categorical, DistributionOf
from policies.learned.algorithms.networks import ActorCritic, tensors
from policies.learned.algorithms.rollout import Array

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """E episodes of one sequence, side by side, padded to the longest: T steps.

    Invariant: `played[t, i]` is True up to the last step of episode i and False after it; what the other arrays have there is not
    used.
    """

    observations: Array
    """(T, E, ...)"""
    masks: Flags | None
    """(T, E, n), or None if all actions are always possible."""
    actions: Array
    """(T, E), or (T, E, D) where an action has D parts."""
    rewards: Floats
    """(T, E)"""
    played: Flags
    """(T, E)"""


@dataclass(frozen=True, kw_only=True)
class ReinforceSettings:
    """Hyper-parameters."""

    gamma: float = 1.0
    entropy_weight: float = 0.0
    normalize: bool = False
    """Divide the advantages by their deviation, which makes the step independent of the reward's unit. Not in the papers."""
    max_grad_norm: float | None = None
    """Norm at which gradients are clipped; None: not at all."""


class Reinforce:
    """Learns from episodes of one sequence at a time. Of the network only the logits are used."""

    def __init__(
        self,
        network: ActorCritic,
        optimizer: torch.optim.Optimizer,
        settings: ReinforceSettings,
        distribution: DistributionOf = Categorical,
    ) -> None:
        self.network = network
        self.settings = settings
        self._optimizer = optimizer
        self._distribution = distribution

    def update(self, episodes: Episodes) -> dict[str, float]:
        """Make one gradient step on all episodes. Returns the mean return from the first step, the loss and the entropy."""
        return self.update_all([episodes])

    def update_all(self, sequences: Sequence[Episodes]) -> dict[str, float]:
        """Make one gradient step on episodes of several sequences, each with its own baselines. Returns means over sequences."""
        self._optimizer.zero_grad()
        found = [self._add_gradient(episodes, 1.0 / len(sequences)) for episodes in sequences]
        if self.settings.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.max_grad_norm)
        self._optimizer.step()
        return {name: sum(figures[name] for figures in found) / len(found) for name in found[0]}

    def _add_gradient(self, episodes: Episodes, weight: float) -> dict[str, float]:
        """Add that share of the gradient on one sequence's episodes; return its figures."""
        settings, played = self.settings, episodes.played
        returns = discounted_returns(episodes.rewards, played, settings.gamma)
        advantages = (returns - step_baseline(returns))[played]
        if settings.normalize:
            advantages = advantages / (advantages.std() + 1e-8)
        logits, _ = self.network(tensors(episodes.observations[played]))
        masks = None if episodes.masks is None else tensors(episodes.masks[played])
        distribution = self._distribution(logits, masks)
        log_probs = distribution.log_prob(tensors(episodes.actions[played]))
        # The mean over episodes of the sum over steps: a longer episode has more weight.
        count = played.shape[1]
        loss = -(log_probs * torch.as_tensor(advantages, dtype=torch.float32)).sum() / count
        entropy = distribution.entropy().mean()
        (weight * (loss - settings.entropy_weight * entropy)).backward()
        return {
            "return": float(returns[0].mean()),
            "loss": float(loss.detach()),
            "entropy": float(entropy.detach()),
        }


def discounted_returns(rewards: Floats, played: Flags, gamma: float) -> Floats:
    """Return v_t of each episode (T, E), 0 after its end."""
    returns = np.where(played, rewards, 0.0)
    for step in range(len(returns) - 2, -1, -1):
        returns[step] += gamma * returns[step + 1]
    return returns


def step_baseline(returns: Floats) -> Floats:
    """Return b_t (T, 1): the mean over episodes of what each earns from step t on."""
    baseline: Floats = returns.mean(axis=1, keepdims=True)
    return baseline
