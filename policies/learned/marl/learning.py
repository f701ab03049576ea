"""Episodes of the environment of MARL, and gradient steps on their decisions (section IV-C).

    delta  = r + gamma V(s') - V(s)
    actor  = - delta log pi(a | s), delta taken as constant             critic = delta^2, V(s') taken as constant

r is the share of its steps that the job of the decision trained in the interval; all decisions on a job have the same. s' is the
state of the same scheduler's next decision, 0 behind its last one. The environment is `headway/Marl-v0` with agent=None: all
schedulers act in turn, and each row is learned by the network of the scheduler that acted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.distribution import Categorical
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.recipe import Recipe

Array = npt.NDArray[Any]
END = -1
LOSSES = ("policy_loss", "value_loss", "entropy")


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one episode, a row for each. Invariant: `following[i]` is a later row of the same scheduler, or END."""

    states: dict[str, Array]
    masks: Array
    actions: Array
    rewards: Array
    following: Array
    """Row of the same scheduler's next decision; END behind its last one."""
    outcome: dict[str, float]


class Learner:
    """Plays and learns. Invariant: network, optimizer, the state of `rng` and the environment determine all that follows."""

    def __init__(
        self, network: MarlNetwork, optimizer: torch.optim.Optimizer, recipe: Recipe, rng: torch.Generator
    ) -> None:
        self.network = network
        self._optimizer = optimizer
        self._recipe = recipe
        self._rng = rng

    def choose(self, seen: dict[str, Array], mask: Array, *, likeliest: bool = False) -> int:
        """Return an action: drawn, or the likeliest one."""
        with torch.inference_mode():
            logits, _ = self.network({name: torch.from_numpy(cells[None]) for name, cells in seen.items()})
            found = Categorical(logits, torch.from_numpy(mask[None]))
            return int(found.mode() if likeliest else found.sample(self._rng))

    def play(self, env: gymnasium.Env[Any, Any], seed: int | None, *, likeliest: bool = False) -> Decisions:
        """Play one episode from `reset` with that seed."""
        masks_now = env.get_wrapper_attr("action_masks")
        seen, _ = env.reset(seed=seed)
        states: list[dict[str, Array]] = []
        masks, actions, rewards = [], [], []
        over = False
        info: dict[str, Any] = {}
        while not over:
            mask = masks_now()
            action = self.choose(seen, mask, likeliest=likeliest)
            states.append(seen)
            masks.append(mask)
            actions.append(action)
            seen, _, terminated, truncated, info = env.step(action)
            rewards.extend(info.get("action_rewards", []))
            over = terminated or truncated
        rewards.extend([0.0] * (len(actions) - len(rewards)))  # an episode that was cut off
        return Decisions(
            states={name: np.stack([each[name] for each in states]) for name in states[0]},
            masks=np.stack(masks),
            actions=np.array(actions),
            rewards=np.array(rewards, dtype=np.float32),
            following=following([int(each["scheduler"].argmax()) for each in states]),
            outcome=dict(info.get("outcome", {})),
        )

    def update(self, episodes: Sequence[Decisions]) -> dict[str, float]:
        """Make a gradient step for each batch of the decisions of these episodes, in random order; return the mean losses."""
        first = np.cumsum([0, *(len(each.actions) for each in episodes)])
        states = {name: np.concatenate([each.states[name] for each in episodes]) for name in episodes[0].states}
        masks = torch.from_numpy(np.concatenate([each.masks for each in episodes]))
        actions = torch.from_numpy(np.concatenate([each.actions for each in episodes]))
        rewards = torch.from_numpy(np.concatenate([each.rewards for each in episodes]))
        follow = np.concatenate(
            [
                np.where(each.following == END, END, each.following + at)
                for each, at in zip(episodes, first, strict=False)
            ]
        )
        order = torch.randperm(len(actions), generator=self._rng).numpy()
        found = []
        for begin in range(0, len(order), self._recipe.batch):
            rows = order[begin : begin + self._recipe.batch]
            after, ends = np.maximum(follow[rows], 0), torch.from_numpy(follow[rows] == END)
            with torch.no_grad():
                following_values = self.network(_rows(states, after))[1].masked_fill(ends, 0.0)
            returns = rewards[rows] + self._recipe.gamma * following_values
            found.append(self._step(_rows(states, rows), masks[rows], actions[rows], returns))
        return dict(zip(LOSSES, np.mean(found, axis=0).tolist(), strict=True))

    def _step(
        self, states: dict[str, torch.Tensor], masks: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor
    ) -> tuple[float, float, float]:
        logits, values = self.network(states)
        distribution = Categorical(logits, masks)
        delta = returns - values
        policy_loss = -(delta.detach() * distribution.log_prob(actions)).mean()
        value_loss = delta.square().mean()
        entropy = distribution.entropy().mean()
        loss = policy_loss + value_loss - self._recipe.entropy_weight * entropy
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._recipe.max_grad_norm)
        self._optimizer.step()
        return float(policy_loss.detach()), float(value_loss.detach()), float(entropy.detach())


def following(schedulers: Sequence[int]) -> Array:
    """Return the row of the next decision of the same scheduler for each row; END behind its last one."""
    found = np.full(len(schedulers), END)
    later: dict[int, int] = {}
    for row in range(len(schedulers) - 1, -1, -1):
        found[row] = later.get(schedulers[row], END)
        later[schedulers[row]] = row
    return found


def _rows(states: dict[str, Array], rows: Array) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(cells[rows]) for name, cells in states.items()}
