"""A copy of the networks in service that learns by actor-critic with replay (section 4.3 of the paper)."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import torch

from policies.learned.algorithms.actor_critic import ActorCriticSettings, AdvantageActorCritic
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.learning.service import Weights
from policies.learned.dl2.recipe import Recipe
from policies.learned.dl2.system import ACTOR, NAME
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard

FEEDBACK_UPDATES = "feedback_updates"
"""Entry of a card's recipe: number of gradient steps from a cluster's rewards that changed the policy network."""
CRITIC_UPDATES = 20
"""First gradient steps of a copy, in which only the value network learns: cards have none, so it begins anew."""


class NetworkCopy:
    """Networks that learn. Invariant: the networks in service share nothing with them."""

    def __init__(self, of: Weights, recipe: Recipe, seed: int) -> None:
        """The policy network begins with the weights in service; of the recipe, the fields of reinforcement learning count."""
        self.updates = 0
        """Gradient steps so far."""
        self.compared = 0
        """Gradient steps when it was last saved to be compared."""
        self._card = of.card
        self._batch = recipe.batch
        self._network = copy.deepcopy(of.network).requires_grad_(True)
        settings = ActorCriticSettings(
            gamma=recipe.gamma, entropy_weight=recipe.entropy_weight, max_grad_norm=recipe.max_grad_norm
        )
        self._algorithm = AdvantageActorCritic(
            self._network,
            torch.optim.Adam(self._network.parameters(), lr=recipe.learning_rate),
            settings,
            torch.Generator().manual_seed(seed),
            values=self._network.values,
        )

    @property
    def policy_updates(self) -> int:
        """Gradient steps that changed the policy network."""
        return max(self.updates - CRITIC_UPDATES, 0)

    @property
    def has_changed(self) -> bool:
        """True if the policy network has changed since it was last saved to be compared."""
        return self.policy_updates > 0 and self.updates > self.compared

    def update(self, memory: PrioritizedReplay) -> bool:
        """Make one gradient step. Return False if it diverged: then the copy is of no use any more."""
        self._network.actor.requires_grad_(self.updates >= CRITIC_UPDATES)
        losses = self._algorithm.update_from(memory, self._batch)
        self.updates += 1
        return all(map(math.isfinite, losses.values()))

    def save(self, folder: Path) -> ModelCard:
        """Write the policy network and its card to the folder, as a training does, and return the card.

        Raises PolicyError, OSError.
        """
        before = self._card.recipe.get(FEEDBACK_UPDATES, 0)
        updates = self.policy_updates + (before if isinstance(before, int) else 0)
        # Its validations were of other weights.
        card = replace(self._card, recipe={**self._card.recipe, FEEDBACK_UPDATES: updates}, results={})
        state = {name: each for name, each in self._network.state_dict().items() if name.startswith(ACTOR)}
        self.compared = self.updates
        return weights.save(folder, NAME, state, card)
