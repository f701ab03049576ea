"""Reinforcement learning on the samples of the present policy, by PPO; an option of the recipe that is not in DL2's paper.

    for each round: an episode in every environment, with actions drawn from the policy
                    returns of jobs, advantages of actions                                   (`credit`)
                    `passes` times, in batches: a step of the value network towards the returns of jobs, and one of the policy
                    network on the clipped loss (Schulman et al., "Proximal policy optimization algorithms", 2017, equation 7)

The reward is the paper's: that of the slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from policies.learned.algorithms.distribution import Categorical
from policies.learned.algorithms.losses import clipped_surrogate, descend
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.recipe import Recipe
from policies.learned.dl2.reinforcement.credit import Credit, Floats, Slot, credit_of, values_at_begin
from policies.learned.dl2.state_columns import States

_LOSSES = ("policy_loss", "value_loss", "entropy", "kl")


@dataclass
class Episode:
    """The slots of an episode. Invariant: all of `slots` have run to their end. Bound: the slots of one episode."""

    slots: list[Slot] = field(default_factory=list)
    cut: Slot | None = None
    """The slot in which the episode was cut off, whose rewards are not known; None if all jobs have finished."""


class OnPolicyLearning:
    """Rounds of reinforcement learning. Invariant: between rounds, network, optimizers and seeds determine all that follows."""

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], network: DL2Network, recipe: Recipe) -> None:
        """The environments begin anew in the step in which they end, and report the reward of each action's job."""
        self.optimizer = torch.optim.Adam(network.actor.parameters(), lr=recipe.learning_rate, fused=True)
        self.critic_optimizer = torch.optim.Adam(
            network.critic.parameters(), lr=recipe.critic_learning_rate, fused=True
        )
        self._network = network
        self._envs: Any = envs
        self._recipe = recipe
        self._random = torch.Generator()

    def parts(self) -> dict[str, Any]:
        """Return what a training keeps, besides the network, in order to be continued."""
        return {"optimizer": self.optimizer, "critic_optimizer": self.critic_optimizer}

    def run_round(
        self, seeds: list[int], rng: np.random.Generator, *, critic_only: bool, number: int = 0
    ) -> dict[str, float]:
        """Play an episode in every environment, and learn from them. Return the number of gradient steps, and their means.

        The round's number determines the weight of the entropy.
        """
        self._random.manual_seed(int(rng.integers(1 << 31)))
        rows = self._rows([each for each in self._played(seeds) if each.slots])
        weight = self._recipe.entropy_weight_in(number)
        losses: list[tuple[float, ...]] = []
        for _ in range(self._recipe.passes):
            order = torch.randperm(len(rows["actions"]), generator=self._random)
            for chosen in torch.split(order, self._recipe.batch):
                batch = {name: tensor[chosen] for name, tensor in rows.items()}
                value_loss = self._learn_values(batch)
                policy = (0.0, 0.0, 0.0) if critic_only else self._learn_policy(batch, weight)
                losses.append((policy[0], value_loss, *policy[1:]))
        figures = dict(zip(_LOSSES, np.mean(losses, axis=0).tolist(), strict=True))
        return {**figures, "updates": float(len(losses))}

    def _played(self, seeds: list[int]) -> list[Episode]:
        """Play an episode in each environment."""
        envs = self._envs
        states, _ = envs.reset(seed=cast(Any, seeds))
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        episodes = [Episode() for _ in range(envs.num_envs)]
        slots = [Slot() for _ in range(envs.num_envs)]
        while goes_on.any():
            masks, shown = envs.action_masks(), envs.call("shown_tasks")
            actions, log_probs = self._act(states, masks)
            following, _, terminated, truncated, infos = envs.step(actions)
            over = terminated | truncated
            ended = infos.get("slot_ended", np.zeros(envs.num_envs, dtype=np.bool_)) | over
            for row in np.flatnonzero(goes_on).tolist():
                slot = slots[row]
                slot.states.append(states[row])
                slot.masks.append(masks[row])
                slot.actions.append(int(actions[row]))
                slot.log_probs.append(float(log_probs[row]))
                slot.jobs.append(tuple(job for job, _ in shown[row]))
                if truncated[row]:
                    episodes[row].cut = slot
                elif ended[row]:
                    _note_rewards(slot, (infos["final_info"] if over[row] else infos)["action_rewards"][row])
                    episodes[row].slots.append(slot)
                    slots[row] = Slot()
            goes_on &= ~over
            states = following
        return episodes

    def _act(
        self, states: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        with torch.inference_mode():
            distribution = Categorical(self._network.logits(torch.from_numpy(states)), torch.from_numpy(masks))
            actions = distribution.sample(self._random)
            return actions.numpy(), distribution.log_prob(actions).numpy()

    def _rows(self, episodes: list[Episode]) -> dict[str, Tensor]:
        """Return the samples of a round, with advantages of mean 0 and deviation 1."""
        found = [self._credited(each) for each in episodes]
        rows = {name: torch.from_numpy(np.concatenate([of[name] for of in found])) for name in found[0]}
        advantages = rows["advantages"]
        rows["advantages"] = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return rows

    def _credited(self, episode: Episode) -> Mapping[str, npt.NDArray[Any]]:
        slots, recipe = episode.slots, self._recipe
        states = np.stack([state for slot in slots for state in slot.states])
        credit: Credit = credit_of(
            slots,
            self._values(states),
            gamma=recipe.gamma,
            slot_lambda=recipe.slot_lambda,
            step_lambda=recipe.step_lambda,
            later=None if episode.cut is None else values_at_begin(episode.cut, self._values(episode.cut.states)),
        )
        return {
            "seen": states,
            "masks": np.stack([mask for slot in slots for mask in slot.masks]),
            "actions": np.array([action for slot in slots for action in slot.actions], dtype=np.int64),
            "log_probs": np.array([each for slot in slots for each in slot.log_probs], dtype=np.float32),
            "returns": credit.returns,
            "has_job": credit.has_job,
            "advantages": credit.advantages,
        }

    def _values(self, states: npt.NDArray[np.float32] | list[States]) -> Floats:
        with torch.inference_mode():
            values: Floats = self._network.job_values(torch.from_numpy(np.asarray(states))).numpy()
        return values

    def _learn_values(self, rows: Mapping[str, Tensor]) -> float:
        """Make a gradient step of the value network; return its loss."""
        errors = (self._network.job_values(rows["seen"]) - rows["returns"])[rows["has_job"]]
        loss = errors.square().mean()
        self.critic_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.critic_optimizer.step()
        return float(loss.detach())

    def _learn_policy(self, rows: Mapping[str, Tensor], entropy_weight: float) -> tuple[float, float, float]:
        """Make a gradient step of the policy network; return its loss, the entropy, and the divergence from the old policy."""
        recipe = self._recipe
        distribution = Categorical(self._network.logits(rows["seen"]), rows["masks"])
        log_probs = distribution.log_prob(rows["actions"])
        terms = clipped_surrogate(log_probs, rows["log_probs"], rows["advantages"], recipe.clip_range)
        policy_loss, entropy = -terms.objective.mean(), distribution.entropy().mean()
        loss = policy_loss - entropy_weight * entropy
        descend(loss, self.optimizer, self._network.actor.parameters(), recipe.max_grad_norm)
        return float(policy_loss.detach()), float(entropy.detach()), float(terms.kl.mean())


def _note_rewards(slot: Slot, of_actions: list[float]) -> None:
    """Note the rewards of the jobs that the slot's actions gave a task; the last row of actions is void."""
    for shown, action, reward in zip(slot.jobs, slot.actions, of_actions, strict=True):
        row = action // 3
        if row < len(shown):
            slot.rewards[shown[row]] = reward
