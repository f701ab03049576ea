"""Gradient steps on decisions: the actor-critic of section IV-C, and imitation of a rule.

    delta  = r + gamma V(s') - V(s)
    actor  = - delta log pi(a | s), delta taken as constant             critic = delta^2, V(s') taken as constant

r is the share of its steps that the job of the decision trained in the interval, or with `reward=speed` the job's speed; all
decisions on a job have the same. s' is the state of the same scheduler's next decision, 0 behind its last one; its value is that of
the time of that decision. Each row is learned by the network of the scheduler that acted.

Imitation is not in the paper. The rule gives each action a score, and the network learns the distribution softmax(- score /
temperature): groups that are equally good for the rule are equally likely. The critic learns meanwhile, as above.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from policies.learned.algorithms.distribution import Categorical
from policies.learned.algorithms.losses import ActorCriticLosses, actor_critic_losses, descend
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.playing import END, Array, Decisions
from policies.learned.marl.recipe import Recipe

LOSSES = ("policy_loss", "value_loss", "entropy")
IMITATION_LOSSES = ("loss", "agreement")


class ActorCritic:
    """Learns from rewards. Invariant: network, optimizer, decisions and `rng` determine all that follows."""

    def __init__(self, network: MarlNetwork, optimizer: torch.optim.Optimizer, recipe: Recipe) -> None:
        self._network = network
        self._optimizer = optimizer
        self._recipe = recipe

    def update(self, played: Decisions, rng: np.random.Generator) -> dict[str, float]:
        """Make a gradient step for each batch of these decisions, in random order; return the mean losses."""
        returns = _returns(played, self._recipe.gamma)
        order = rng.permutation(len(played))
        batches = [order[at : at + self._recipe.batch] for at in range(0, len(order), self._recipe.batch)]
        found = [self._step(played, rows, torch.from_numpy(returns[rows])) for rows in batches]
        return dict(zip(LOSSES, np.mean(found, axis=0).tolist(), strict=True))

    def loss(self, played: Decisions, rows: Array) -> float:
        """Return the mean loss of actor and critic on these rows, without a gradient step; NaN for no rows."""
        with torch.no_grad():
            losses = self._losses(played, rows, torch.from_numpy(_returns(played, self._recipe.gamma)[rows]))
        return float(losses.policy + losses.value)

    def _losses(self, played: Decisions, rows: Array, returns: Tensor) -> ActorCriticLosses:
        logits, values = self._network.decide(*played.rows(rows))
        distribution = Categorical(logits, torch.from_numpy(played.masks[rows]))
        return actor_critic_losses(distribution, torch.from_numpy(played.actions[rows]), values, returns)

    def _step(self, played: Decisions, rows: Array, returns: Tensor) -> tuple[float, float, float]:
        losses = self._losses(played, rows, returns)
        loss = losses.policy + losses.value - self._recipe.entropy_weight * losses.entropy
        descend(loss, self._optimizer, self._network.parameters(), self._recipe.max_grad_norm)
        policy, value, entropy = (float(each.detach()) for each in losses)
        return policy, value, entropy


class Imitation:
    """Learns what a rule prefers, and its own value. Invariant: as of `ActorCritic`."""

    def __init__(self, network: MarlNetwork, recipe: Recipe) -> None:
        self.optimizer = torch.optim.Adam(network.parameters(), recipe.imitation_learning_rate)
        self._network = network
        self._recipe = recipe

    def update(self, played: Decisions, rng: np.random.Generator, number: int) -> dict[str, float]:
        """Make the gradient steps of round `number` on random batches; return the means of the loss, and of the share of
        decisions in which the likeliest action is one of the rule's best."""
        recipe = self._recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.imitation_learning_rate * (1.0 - number / recipe.imitation_rounds)
        returns, size = _returns(played, recipe.gamma), recipe.imitation_batch
        batches = [rng.integers(len(played), size=size) for _ in range(recipe.imitation_updates)]
        found = [self._step(played, rows, torch.from_numpy(returns[rows])) for rows in batches]
        return dict(zip(IMITATION_LOSSES, np.mean(found, axis=0).tolist(), strict=True))

    def _step(self, played: Decisions, rows: Array, returns: Tensor) -> tuple[float, float]:
        logits, values = self._network.decide(*played.rows(rows))
        scores = torch.from_numpy(played.advice[rows])
        wanted = torch.softmax(-scores / self._recipe.temperature, 1).float()
        distribution = Categorical(logits, torch.from_numpy(played.masks[rows]))
        loss = -(wanted * distribution.log_probs).sum(1).mean()
        both = loss + (returns - values).square().mean()
        descend(both, self.optimizer, self._network.parameters(), self._recipe.max_grad_norm)
        with torch.no_grad():
            chosen = scores.gather(1, distribution.mode().unsqueeze(1)).squeeze(1)
            agree = chosen <= scores.amin(1) + 1e-9
        return float(loss.detach()), float(agree.float().mean())


def _returns(played: Decisions, gamma: float) -> npt.NDArray[np.float32]:
    """Return r + gamma V(s') of each decision."""
    after = np.where(played.following == END, 0.0, played.values[np.maximum(played.following, 0)])
    found: npt.NDArray[np.float32] = (played.rewards + gamma * after).astype(np.float32)
    return found
