"""Imitation of the rule of blocks, before reinforcement learning. It is not in the paper.

for each round: the rule acts in one half of the environments, and the network in the other half (in the first round the rule
                acts in all); the rule says for each state what it would do
                gradient steps on batches of these (state, action)

States that the network itself meets are in the data because its first mistakes would lead it to states that the rule never meets
(Ross et al., "A reduction of imitation learning and structured prediction to no-regret online learning", 2011).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.distribution import MultiCategorical
from policies.learned.algorithms.imitation import Imitation
from policies.learned.rl_taps.blocks_rule import actions_of
from policies.learned.rl_taps.image_columns import ImageColumns
from policies.learned.rl_taps.network import RlTapsNetwork
from policies.learned.rl_taps.recipe import Recipe

Shown = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


class Imitating:
    """Rounds of imitation. Invariant: between rounds, network and optimizer are all that changes."""

    def __init__(
        self,
        envs: gymnasium.vector.VectorEnv[Any, Any, Any],
        columns: ImageColumns,
        network: RlTapsNetwork,
        recipe: Recipe,
    ) -> None:
        self.optimizer = torch.optim.Adam(network.parameters(), recipe.imitation_learning_rate, fused=True)
        self._learner = Imitation(network, self.optimizer, distribution=MultiCategorical)
        self._envs = envs
        self._columns = columns
        self._network = network
        self._recipe = recipe

    def run_round(self, seeds: list[int], rng: np.random.Generator, number: int) -> dict[str, float]:
        """Play an episode in every environment, and learn from its states. Return the means of the gradient steps.

        `number` counts the rounds from 0 on.
        """
        recipe = self._recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.imitation_learning_rate * (1.0 - number / recipe.imitation_rounds)
        shown = list(self._shown(seeds, rule_alone=number == 0))
        images, actions = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*shown, strict=True))
        found = []
        for _ in range(recipe.imitation_updates):
            chosen = torch.from_numpy(rng.integers(len(actions), size=recipe.imitation_batch))
            found.append(self._learner.update({"seen": images[chosen], "actions": actions[chosen]}))
        return {name: float(np.mean([each[name] for each in found])) for name in found[0]}

    def _shown(self, seeds: list[int], *, rule_alone: bool) -> Iterator[Shown]:
        """Yield the images of all environments that are not done, and the rule's actions there."""
        # Any vectorized environment takes several seeds, though the base class does not say so.
        every: Any = seeds
        seen, _ = self._envs.reset(seed=every)
        goes_on = np.ones(self._envs.num_envs, dtype=np.bool_)
        by_network = slice(0, 0 if rule_alone else self._envs.num_envs // 2)
        for _ in range(self._recipe.max_steps):
            rules = actions_of(self._columns, seen)
            yield seen[goes_on], rules[goes_on]
            acted = rules.copy()
            if not rule_alone:
                with torch.inference_mode():
                    acted[by_network] = self._network.logits(torch.from_numpy(seen[by_network])).argmax(2).numpy()
            seen, _, terminated, truncated, _ = self._envs.step(acted)
            goes_on &= ~(terminated | truncated)
            if not goes_on.any():
                return
