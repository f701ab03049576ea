"""The phase of reinforcement learning (section 4.3 of the paper): actor-critic with replay, one gradient step for each slot.

    for each round, in each environment an episode:
        in a slot, for each task: action ~ policy(state), or that of job-aware exploration
        at its end: each (state, action) of the slot is kept with the slot's reward; one gradient step on samples of the memory

The value of what follows is that of the first state of the next slot, so `gamma` discounts by slots, not by actions.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.actor_critic import LOSSES, ActorCriticSettings, AdvantageActorCritic
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.exploration import explored, mended
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.recipe import Recipe
from policies.learned.dl2.state_columns import StateColumns, States


class SlotLearning:
    """Rounds of reinforcement learning. Invariant: between rounds, network, optimizer, memory and seeds determine all that
    follows."""

    def __init__(
        self,
        envs: gymnasium.vector.VectorEnv[Any, Any, Any],
        columns: StateColumns,
        network: DL2Network,
        recipe: Recipe,
        seed: int,
    ) -> None:
        """The environments begin anew in the step in which they end, and report the end of a slot."""
        self.optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
        self.memory = PrioritizedReplay(recipe.replay_capacity, seed=seed, alpha=0.0, anneal=1)
        self._network = network
        self._envs: Any = envs
        self._columns = columns
        self._recipe = recipe
        self._random = torch.Generator()
        settings = ActorCriticSettings(
            gamma=recipe.gamma, entropy_weight=recipe.entropy_weight, max_grad_norm=recipe.max_grad_norm
        )
        self._algorithm = AdvantageActorCritic(network, self.optimizer, settings, self._random)

    def run_round(self, seeds: list[int], rng: np.random.Generator, *, critic_only: bool) -> dict[str, float]:
        """Play an episode in every environment, and learn. Return the number of gradient steps, and their means.

        Rewards are not among the figures: their sum is the number of jobs, whatever the agent does.
        """
        self._random.manual_seed(int(rng.integers(1 << 31)))
        self._network.actor.requires_grad_(not critic_only)
        envs = self._envs
        slots = [_Slot() for _ in range(envs.num_envs)]
        losses: list[dict[str, float]] = []
        states, _ = envs.reset(seed=cast(Any, seeds))
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        while goes_on.any():
            masks = envs.action_masks()
            actions = self._actions(states, masks, rng)
            following, rewards, terminated, truncated, infos = envs.step(actions)
            ended = infos.get("slot_ended", np.zeros(envs.num_envs, dtype=np.bool_)) | terminated | truncated
            for row in np.flatnonzero(goes_on).tolist():
                slots[row].add(states[row], actions[row], masks[row])
                # What follows an episode that was cut off is not in the batch: its last slot is left out.
                if ended[row] and not truncated[row]:
                    reward = self._recipe.reward_scale * rewards[row]
                    self.memory.add(slots[row].rows(reward, following[row], bool(terminated[row])))
                    slots[row] = _Slot()
                    losses += self._learned()
            goes_on &= ~(terminated | truncated)
            states = following
        self._network.actor.requires_grad_(True)
        means = {name: float(np.mean([each[name] for each in losses] or [0.0])) for name in LOSSES}
        return {**means, "updates": float(len(losses))}

    def _actions(self, states: States, masks: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        actions: npt.NDArray[np.int64] = self._algorithm.act(states, masks)["actions"]
        if not self._recipe.epsilon:
            return actions
        instead = mended(self._columns, states, masks, self._recipe.ratio)
        return explored(actions, instead, self._recipe.epsilon, rng)

    def _learned(self) -> list[dict[str, float]]:
        """Make the slot's gradient step; none while the memory has less than a batch."""
        if len(self.memory) < self._recipe.batch:
            return []
        return [self._algorithm.update_from(self.memory, self._recipe.batch)]


class _Slot:
    """The samples of a slot that has not ended."""

    def __init__(self) -> None:
        self._states: list[States] = []
        self._actions: list[int] = []
        self._masks: list[npt.NDArray[np.bool_]] = []

    def add(self, state: States, action: int, mask: npt.NDArray[np.bool_]) -> None:
        """Note an action."""
        self._states.append(state)
        self._actions.append(action)
        self._masks.append(mask)

    def rows(self, reward: float, following: States, terminated: bool) -> dict[str, npt.NDArray[Any]]:
        """Return the rows for the memory: each has the slot's reward, and the first state of the next slot."""
        count = len(self._actions)
        return {
            "seen": np.stack(self._states),
            "actions": np.array(self._actions, dtype=np.int64),
            "masks": np.stack(self._masks),
            "rewards": np.full(count, reward, dtype=np.float32),
            "next_seen": np.broadcast_to(following, (count, *following.shape)),
            "terminated": np.full(count, terminated),
        }
