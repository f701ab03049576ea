"""The supervised phase (section 4.2 of the paper): the policy network learns a teacher's actions.

for each round: the teacher plays in every environment (an episode in each, or so many actions)
                gradient steps on batches of its (state, action)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.imitation import Imitation
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.recipe import Recipe
from policies.learned.dl2.state_columns import BOTH, StateColumns
from policies.learned.dl2.teachers import actions_of

Rows = dict[str, npt.NDArray[Any]]


class Supervised:
    """Rounds of the supervised phase. Invariant: between rounds, network and optimizer are all that changes."""

    def __init__(
        self,
        envs: gymnasium.vector.VectorEnv[Any, Any, Any],
        columns: StateColumns,
        network: DL2Network,
        recipe: Recipe,
    ) -> None:
        """The environments begin anew in the step in which they end."""
        self.optimizer = torch.optim.Adam(network.actor.parameters(), lr=recipe.supervised_learning_rate, fused=True)
        self._imitation = Imitation(network, self.optimizer, recipe.loss)
        self._envs = envs
        self._columns = columns
        self._recipe = recipe

    def run_round(self, shown: Mapping[str, npt.NDArray[Any]], rng: np.random.Generator) -> dict[str, float]:
        """Learn from what a teacher saw and did. Return the means of the gradient steps."""
        columns = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in shown.items()}
        found = []
        for _ in range(self._recipe.supervised_updates):
            chosen = torch.from_numpy(rng.integers(len(columns["actions"]), size=self._recipe.batch))
            batch = {name: column[chosen] for name, column in columns.items()}
            if self._recipe.smoothing:
                batch["actions"] = torch.from_numpy(
                    smoothed(batch["actions"].numpy(), batch["masks"].numpy(), self._recipe.smoothing, rng)
                )
            found.append(self._imitation.update(batch))
        return {name: float(np.mean([each[name] for each in found])) for name in found[0]}

    def shown(self, seeds: list[int]) -> Rows:
        """Let the recipe's rule act from the beginning of an episode in every environment. Return what it saw and did."""
        rows = list(self._shown(seeds))
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _shown(self, seeds: list[int]) -> Iterator[Rows]:
        envs: Any = self._envs
        states, _ = envs.reset(seed=cast(Any, seeds))
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        shown, most = 0, self._recipe.supervised_samples
        while shown < most if most else goes_on.any():
            masks = envs.action_masks()
            recipe = self._recipe
            actions = actions_of(
                recipe.teacher, self._columns, states, masks, bundle=recipe.bundle, workers=recipe.teacher_workers
            )
            rows = slice(None) if most else goes_on
            yield {"seen": states[rows], "actions": actions[rows], "masks": masks[rows]}
            states, _, terminated, truncated, _ = envs.step(actions)
            shown += envs.num_envs
            goes_on &= ~(terminated | truncated)


def smoothed(
    actions: npt.NDArray[np.int64], masks: npt.NDArray[np.bool_], share: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Replace so large a share of the actions by void or a random pair, all equally likely.

    Where no pair is possible, any action that is possible takes its place.
    """
    pairs = np.zeros_like(masks)
    pairs[:, BOTH:-1:3] = masks[:, BOTH:-1:3]
    usual = np.where(pairs.any(1, keepdims=True), pairs, masks)
    usual[:, -1] = True
    instead = (rng.random(masks.shape) * usual).argmax(1)
    found: npt.NDArray[np.int64] = np.where(rng.random(len(actions)) < share, instead, actions)
    return found
