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

from policies.learned.algorithms.actor_critic import LOSSES, ActorCriticSettings
from policies.learned.algorithms.distribution import Categorical
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.recipe import JOB, Recipe
from policies.learned.dl2.reinforcement.clusters import Cluster
from policies.learned.dl2.reinforcement.exploration import explored, mended
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
        self._envs: Any = envs
        self._columns = columns
        self._recipe = recipe
        self._random = torch.Generator()
        self._uses_left = [0.0] * recipe.clusters
        """Samples of each cluster that gradient steps may still use."""
        self._states = self._poor = 0
        """States of the present round in which actions were taken, and those of them that are poor."""
        settings = ActorCriticSettings(
            gamma=recipe.gamma,
            entropy_weight=recipe.entropy_weight,
            max_grad_norm=recipe.max_grad_norm,
            value_baseline=recipe.value_baseline,
        )
        self.clusters = [
            Cluster(
                network,
                self.optimizer,
                settings,
                self._random,
                PrioritizedReplay(recipe.replay_capacity, seed=seed + number, alpha=0.0, anneal=1),
                is_alone=recipe.clusters == 1,
            )
            for number in range(recipe.clusters)
        ]
        """Environment i is of cluster i modulo their number."""

    def parts(self) -> dict[str, Any]:
        """Return what a training keeps, besides the network, in order to be continued."""
        parts: dict[str, Any] = {"optimizer": self.optimizer}
        for number, cluster in enumerate(self.clusters):
            parts |= {f"average{number or ''}": cluster.algorithm.average, f"memory{number or ''}": cluster.memory}
        return parts

    def run_round(
        self, seeds: list[int], rng: np.random.Generator, *, critic_only: bool, number: int = 0
    ) -> dict[str, float]:
        """Play a round's slots, and learn after each of them. Return the number of gradient steps, their means, and the
        share of states that were poor, so that exploration had an effect (`exploration`).

        The round's number determines the weight of the entropy. Rewards are not among the figures: their sum is the number of
        jobs, whatever the agent does.
        """
        self._random.manual_seed(int(rng.integers(1 << 31)))
        self._uses_left = [0.0] * len(self.clusters)
        self._states = self._poor = 0
        self._begin(critic_only=critic_only, number=number)
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
                    losses += self._learned(found, row % len(self.clusters))
            goes_on &= ~(terminated | truncated)
            states = following
        for cluster in self.clusters:
            cluster.train_actor(True)
        means = {name: float(np.mean([each[name] for each in losses] or [0.0])) for name in LOSSES}
        return {**means, "updates": float(len(losses)), "poor": self._poor / self._states}

    def _begin(self, *, critic_only: bool, number: int) -> None:
        """Prepare every cluster for a round. The shared network may have been changed: by the supervised phase, or by the
        continuation of a training."""
        weight = self._recipe.entropy_weight_in(number)
        for cluster in self.clusters:
            cluster.synchronize()
            cluster.train_actor(not critic_only)
            cluster.algorithm.settings = replace(cluster.algorithm.settings, entropy_weight=weight)

    def _actions(self, states: States, masks: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        seen, possible, count = torch.from_numpy(states), torch.from_numpy(masks), len(self.clusters)
        actions = np.empty(len(states), dtype=np.int64)
        with torch.inference_mode():
            for number, cluster in enumerate(self.clusters):
                logits = cluster.network.logits(seen[number::count])
                actions[number::count] = Categorical(logits, possible[number::count]).sample(self._random).numpy()
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

    def _learned(self, rows: dict[str, npt.NDArray[Any]], number: int) -> list[dict[str, float]]:
        """Keep the samples of a slot of that cluster, and make its gradient step.

        There is none while the memory has less than a batch, nor while steps have used the samples more often than the recipe says.
        """
        cluster, recipe = self.clusters[number], self._recipe
        if not recipe.replay:
            losses = [cluster.algorithm.update_on(rows)]
        else:
            cluster.memory.add(rows)
            left = min(self._uses_left[number] + recipe.uses * len(rows["actions"]), 2.0 * recipe.batch)
            is_enough = len(cluster.memory) >= recipe.batch and left >= recipe.batch
            self._uses_left[number] = left - recipe.batch if is_enough else left
            losses = [cluster.algorithm.update_from(cluster.memory, recipe.batch)] if is_enough else []
        cluster.synchronize()
        return losses


class _Slot:
    """The samples of a slot that has not ended. Bound: the actions of one slot."""

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
