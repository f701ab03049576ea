"""Deep Q-learning: double, dueling, with prioritized replay, returns over several steps, and demonstrations.

    for each round, for each environment an episode:
        repeat: action <- epsilon-greedy on Q(state); the environment gives reward and next state
                keep the transition (prioritized replay); learn from a batch of them

Rewards are discounted by time and not by steps: a step that starts a job takes no time, and a wait may take a minute or hours.
With gamma = exp(-elapsed / horizon) the reward `completions` is the discounted form of minimizing JCT: see the environment.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.sched2.network import QNetwork
from policies.learned.sched2.state.state_layout import StateLayout
from policies.learned.sched2.training.demonstrations import actions_of
from policies.learned.sched2.training.n_step_returns import NStepReturns
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.search import actions_of as rule_actions
from policies.learned.training.run.seeding import generator, seeds


class QLearning:
    """Rounds of Q-learning. Invariant between rounds: all that follows is decided by `state_dict()`, the recipe and the seed.

    The network's linear part holds the rule that was found, and is not trained: what is learned is added to the rule.
    """

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], layout: StateLayout, recipe: Recipe, seed: int
    ) -> None:
        """The environments show that layout, report the elapsed time, and begin anew in the step in which they end."""
        torch.manual_seed(seed)
        self.recipe = recipe
        self.seed = seed
        self.round = 0
        self.network = QNetwork(layout, recipe.hidden, recipe.server)
        self._layout = layout
        self._envs = envs
        self._found: npt.NDArray[np.float64] | None = None
        self._target = copy.deepcopy(self.network)
        learned = [each for name, each in self.network.named_parameters() if not name.startswith("rule.")]
        self._optimizer = torch.optim.Adam(learned, recipe.learning_rate, fused=True)
        self._memory = PrioritizedReplay(
            recipe.replay_capacity, seed=seed, alpha=recipe.alpha, beta=recipe.beta, anneal=20_000, floor=1e-4
        )
        self._losses: list[tuple[float, ...]] = []

    def show(self, rule: npt.NDArray[np.float64]) -> None:
        """Demonstrate that rule from now on."""
        self._found = rule

    def begin_with(self, rule: npt.NDArray[np.float64]) -> None:
        """Make that rule the linear part of both networks, and demonstrate it from now on."""
        self.show(rule)
        with torch.no_grad():
            self.network.rule.weight.copy_(torch.from_numpy(self.recipe.rule_scale * rule[None]))
            self._target.rule.weight.copy_(self.network.rule.weight)

    def run_round(self) -> dict[str, float]:
        """Play a new episode in every environment to its end, and learn from the transitions. Returns the means of the round."""
        recipe = self.recipe
        done = self.round / recipe.rounds
        shows = self.round < recipe.demonstrations
        self._rng = generator(self.seed, "exploration", self.round)
        self._losses = []
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate * (1.0 - 0.9 * done)
        steps, earned = self._episodes(shows, recipe.epsilon * (1.0 - 0.8 * done))
        if shows:
            for _ in range(recipe.pretrain_batches):
                self._learn()
        self.round += 1
        losses = np.mean(self._losses, axis=0) if self._losses else np.zeros(3)
        names = ("loss", "margin_loss", "q")
        return {"steps": steps, "earned": earned, **dict(zip(names, losses.tolist(), strict=True))}

    def _episodes(self, shows: bool, epsilon: float) -> tuple[int, float]:
        envs, recipe = self._envs, self.recipe
        # Every vectorized environment takes several seeds, though the base class does not say so.
        states, _ = envs.reset(seed=cast(Any, seeds(envs.num_envs, self.seed, "episodes", self.round)))
        seen = self._look(states)
        masks = self._masks()
        returns = NStepReturns(recipe.n_steps, shows)
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        earned, count = np.zeros(envs.num_envs), 0
        while goes_on.any():
            actions = self._demonstrated(states, seen, masks) if shows else self.act(seen, masks, epsilon)
            states, rewards, terminated, truncated, infos = envs.step(actions)
            over = terminated | truncated
            elapsed = np.asarray(infos.get("elapsed_h", np.zeros(envs.num_envs)), dtype=np.float64)
            gamma = np.where(over, 0.0, np.exp(-elapsed / recipe.horizon_h))
            following, next_masks = self._look(states), self._masks()
            before = {"seen": seen, "masks": masks, "actions": actions, "kept": goes_on}
            after = {"seen": following, "masks": next_masks}
            rows = returns.step(before, recipe.reward_scale * rewards, gamma, after)
            if rows is not None:
                self._memory.add(rows)
            earned += np.where(goes_on, rewards, 0.0)
            goes_on &= ~over
            seen, masks = following, next_masks
            count += 1
            if not shows and count % recipe.train_every == 0 and len(self._memory) >= recipe.batch:
                self._learn()
        return count, float(earned.mean())

    def _demonstrated(
        self, states: npt.NDArray[np.float32], seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Return the actions of the rule that was found, or of the simple one."""
        if self._found is None:
            return actions_of(self.recipe.rule, self._layout, states, masks)
        _, own, _, _ = self.network.shape.split(torch.from_numpy(seen))
        return rule_actions(np.repeat(self._found[None], len(masks), axis=0), own.numpy(), masks)

    def act(self, seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_], epsilon: float) -> npt.NDArray[np.int64]:
        """Return the best action of each environment, or with probability epsilon a random possible one."""
        with torch.inference_mode():
            best = self.network.q_values(torch.from_numpy(seen), torch.from_numpy(masks)).argmax(1).numpy()
        if epsilon <= 0:
            return best
        drawn = self._rng.random(masks.shape)
        anyone = np.where(masks, drawn, -1.0).argmax(1)
        return np.where(self._rng.random(len(best)) < epsilon, anyone, best)

    def _look(self, states: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            seen: npt.NDArray[np.float32] = self.network.features(torch.from_numpy(states)).numpy()
        return seen

    def _masks(self) -> npt.NDArray[np.bool_]:
        envs: Any = self._envs
        return envs.action_masks() if hasattr(envs, "action_masks") else np.stack(envs.call("action_masks"))

    def _learn(self) -> None:
        """Make one gradient step on the error of Q, and on the large-margin loss of demonstrated actions."""
        recipe, sample = self.recipe, self._memory.sample(self.recipe.batch)
        rows = {name: torch.from_numpy(column) for name, column in sample.rows.items()}
        seen, actions = rows["seen"].float(), rows["actions"].unsqueeze(1)
        values = self.network.q_values(seen, rows["masks"])
        taken = values.gather(1, actions).squeeze(1)
        errors = taken - self._targets(rows)
        weights = torch.from_numpy(sample.weights).float()
        shown = rows["shown"].float()
        others = (values + recipe.margin).scatter(1, actions, taken.unsqueeze(1))
        margins = (others.masked_fill(~rows["masks"], -1e9).amax(1) - taken).clamp(min=0.0) * shown
        loss = (
            weights * torch.nn.functional.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none", beta=0.05)
        ).mean()
        margin_loss = margins.mean()
        self._optimizer.zero_grad()
        (loss + recipe.margin_weight * margin_loss).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), recipe.max_grad_norm)
        self._optimizer.step()
        self._memory.update(sample.indices, errors.detach().abs().numpy())
        with torch.no_grad():
            for target, fast in zip(self._target.parameters(), self.network.parameters(), strict=True):
                target.lerp_(fast, recipe.tau)
        self._losses.append((float(loss.detach()), float(margin_loss.detach()), float(taken.detach().mean())))

    def _targets(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Return rewards plus the target network's Q of the action that the network prefers (double Q-learning)."""
        with torch.no_grad():
            following, masks = rows["next_seen"].float(), rows["next_masks"]
            best = self.network.q_values(following, masks).argmax(1, keepdim=True)
            value = self._target.q_values(following, masks).gather(1, best).squeeze(1)
            return rows["returns"] + rows["gammas"] * value

    def state_dict(self) -> dict[str, Any]:
        """Return all from which `load_state_dict` goes on; called between rounds."""
        return {
            "round": self.round,
            "network": {name: tensor.clone() for name, tensor in self.network.state_dict().items()},
            "slow": {name: tensor.clone() for name, tensor in self._target.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
            "memory": self._memory.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Go on from such a state."""
        self.round = int(state_dict["round"])
        self.network.load_state_dict(state_dict["network"])
        self._target.load_state_dict(state_dict["slow"])
        self._optimizer.load_state_dict(state_dict["optimizer"])
        self._memory.load_state_dict(state_dict["memory"])
