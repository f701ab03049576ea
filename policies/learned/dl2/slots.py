"""The phase of reinforcement learning (section 4.3 of the paper): actor-critic with replay, one gradient step for each slot.

    for each round, in several environments (an episode in each, or until so many slots have ended):
        in a slot, for each task: action ~ policy(state), or that of job-aware exploration
        at its end: each (state, action) of the slot is kept with the slot's reward; one gradient step on samples of the memory,
        unless the samples have been used often enough

The value of what follows is that of the first state of the next slot, so `gamma` discounts by slots, not by actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.actor_critic import LOSSES, ActorCriticSettings, AdvantageActorCritic
from policies.learned.algorithms.distribution import Categorical
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.exploration import explored, mended
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.recipe import JOB, Recipe
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
        self.optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate, fused=True)
        self.memories = [
            PrioritizedReplay(recipe.replay_capacity, seed=seed + cluster, alpha=0.0, anneal=1)
            for cluster in range(recipe.clusters)
        ]
        """Samples of each cluster; environment i is of cluster i modulo their number."""
        self._network = network
        self._envs: Any = envs
        self._columns = columns
        self._recipe = recipe
        self._random = torch.Generator()
        self._uses_left = 0.0
        """Samples that gradient steps may still use."""
        self._states = self._poor = 0
        """States of the present round in which actions were taken, and those of them that are poor."""
        settings = ActorCriticSettings(
            gamma=recipe.gamma,
            entropy_weight=recipe.entropy_weight,
            max_grad_norm=recipe.max_grad_norm,
            value_baseline=recipe.value_baseline,
        )
        self._algorithm = AdvantageActorCritic(network, self.optimizer, settings, self._random, values=network.values)

    def parts(self) -> dict[str, Any]:
        """Return what a training keeps, besides the network, in order to be continued."""
        memories = {f"memory{cluster or ''}": memory for cluster, memory in enumerate(self.memories)}
        return {"optimizer": self.optimizer, "average": self._algorithm.average, **memories}

    def run_round(
        self, seeds: list[int], rng: np.random.Generator, *, critic_only: bool, number: int = 0
    ) -> dict[str, float]:
        """Play a round's slots, and learn after each of them. Return the number of gradient steps, their means, and the
        share of states that were poor, so that exploration had an effect (`exploration`).

        The round's number determines the weight of the entropy. Rewards are not among the figures: their sum is the number of
        jobs, whatever the agent does.
        """
        self._random.manual_seed(int(rng.integers(1 << 31)))
        self._uses_left = 0.0
        self._states = self._poor = 0
        self._network.actor.requires_grad_(not critic_only)
        settings = self._algorithm.settings
        self._algorithm.settings = replace(settings, entropy_weight=self._recipe.entropy_weight_in(number))
        envs = self._envs
        slots = [_Slot() for _ in range(envs.num_envs)]
        losses: list[dict[str, float]] = []
        states, _ = envs.reset(seed=cast(Any, seeds))
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        ended_slots, most = 0, self._recipe.slots
        while ended_slots < most if most else goes_on.any():
            masks = envs.action_masks()
            actions = self._actions(states, masks, rng)
            following, rewards, terminated, truncated, infos = envs.step(actions)
            ended = infos.get("slot_ended", np.zeros(envs.num_envs, dtype=np.bool_)) | terminated | truncated
            for row in range(envs.num_envs) if most else np.flatnonzero(goes_on).tolist():
                slots[row].add(states[row], actions[row], masks[row])
                if not ended[row]:
                    continue
                ended_slots += 1
                slot, slots[row] = slots[row], _Slot()
                # What follows an episode that was cut off is not in the batch: its last slot is left out.
                if not truncated[row]:
                    # The info of an episode's last step stands apart: its environment has begun anew.
                    info = infos["final_info"] if terminated[row] else infos
                    of_actions = self._rewards(rewards[row], info, row)
                    found = slot.rows(of_actions, following[row], terminated=bool(terminated[row]))
                    losses += self._learned(found, self.memories[row % len(self.memories)])
            goes_on &= ~(terminated | truncated)
            states = following
        self._network.actor.requires_grad_(True)
        means = {name: float(np.mean([each[name] for each in losses] or [0.0])) for name in LOSSES}
        return {**means, "updates": float(len(losses)), "poor": self._poor / self._states}

    def _actions(self, states: States, masks: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        with torch.inference_mode():
            distribution = Categorical(self._network.logits(torch.from_numpy(states)), torch.from_numpy(masks))
            actions: npt.NDArray[np.int64] = distribution.sample(self._random).numpy()
        instead = mended(self._columns, states, masks, self._recipe.ratio)
        self._states += len(states)
        self._poor += int((instead >= 0).sum())
        if not self._recipe.epsilon:
            return actions
        return explored(actions, instead, self._recipe.epsilon, rng)

    def _rewards(self, reward: float, info: Mapping[str, Any], row: int) -> npt.NDArray[np.float32]:
        """Return the scaled reward of each action of the slot that has ended in that environment."""
        found = info["action_rewards"][row] if self._recipe.reward == JOB else [reward]
        return np.array(found, dtype=np.float32) * np.float32(self._recipe.reward_scale)

    def _learned(self, rows: dict[str, npt.NDArray[Any]], memory: PrioritizedReplay) -> list[dict[str, float]]:
        """Keep the samples of a slot, and make its gradient step.

        There is none while the memory has less than a batch, nor while steps have used the samples more often than the recipe says.
        """
        if not self._recipe.replay:
            return [self._algorithm.update_on(rows)]
        memory.add(rows)
        self._uses_left = min(self._uses_left + self._recipe.uses * len(rows["actions"]), 2.0 * self._recipe.batch)
        if len(memory) < self._recipe.batch or self._uses_left < self._recipe.batch:
            return []
        self._uses_left -= self._recipe.batch
        return [self._algorithm.update_from(memory, self._recipe.batch)]


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

    def rows(
        self, rewards: npt.NDArray[np.float32], following: States, *, terminated: bool
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the rows for the memory: each has the slot's reward or its own, and the first state of the next slot."""
        count = len(self._actions)
        return {
            "seen": np.stack(self._states),
            "actions": np.array(self._actions, dtype=np.int64),
            "masks": np.stack(self._masks),
            "rewards": np.broadcast_to(rewards, (count,)),
            "next_seen": np.broadcast_to(following, (count, *following.shape)),
            "terminated": np.full(count, terminated),
        }
