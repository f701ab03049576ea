"""Deep Q-learning of SCHED2 (`algorithms.dqn`): rounds of whole episodes in all environments (the paper, section III-F).

    for each round, for each environment an episode:
        repeat: action <- epsilon-greedy on Q(state); the environment gives reward and next state
                keep the transition (prioritized replay); learn from a batch of them

The paper names DQN (Mnih et al. 2015), epsilon-greedy and prioritized replay (Schaul et al. 2016). Here the next action is chosen
by double Q-learning (van Hasselt et al. 2016), unless the recipe says otherwise.

Rewards are discounted for each action (`gamma`), or by time (`horizon_h`): a step that starts a job takes no time, and a wait may
take a minute or hours. With gamma = exp(-elapsed / horizon) the reward `completions` is the discounted form of minimizing JCT: see
the environment. A recipe may begin with rounds of demonstrations by a simple rule, with a large-margin loss (DQfD, Hester et al.
2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from policies.learned.algorithms.dqn import LOSSES, Dqn, DqnSettings
from policies.learned.algorithms.n_step_returns import NStepReturns
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.algorithms.rollout import durations
from policies.learned.sched2.networks import Sched2Network, network_of
from policies.learned.sched2.state.state_columns import StateColumns
from policies.learned.sched2.training.demonstrations import actions_of
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.training_setup import check_columns
from policies.learned.training.run.seeding import generator, seeds

Arrays = Mapping[str, npt.NDArray[Any]]


class QLearning:
    """Rounds of Q-learning. Invariant between rounds: `state_dict()`, the recipe and the seed determine all that follows."""

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], columns: StateColumns, recipe: Recipe, seed: int
    ) -> None:
        """The environments show those columns, report the elapsed time, and begin anew in the step in which they end. Raises
        TrainingError where they show other columns."""
        check_columns(envs, columns)
        torch.manual_seed(seed)
        self.recipe = recipe
        self.seed = seed
        self.round = 0
        self._columns = columns
        self._envs = envs
        network = network_of(asdict(recipe), columns)
        memory = PrioritizedReplay(
            recipe.replay_capacity, seed=seed, alpha=recipe.alpha, beta=recipe.beta, anneal=20_000, floor=1e-4
        )
        self.dqn = Dqn(network, network.parameters(), memory, settings_of(recipe), rate=recipe.learning_rate)
        self._losses: list[dict[str, float]] = []
        """Losses of the present round. Bound: the steps of one round."""

    @property
    def network(self) -> Sched2Network:
        """The network that is trained."""
        return self.dqn.network

    def run_round(self) -> dict[str, float]:
        """Play a new episode in every environment to its end, and learn from the transitions. Returns the means of the round."""
        recipe = self.recipe
        done = self.round / recipe.rounds
        shows = self.round < recipe.demonstrations
        self._rng = generator(self.seed, "exploration", self.round)
        self._losses = []
        self.dqn.set_learning_rate(recipe.learning_rate * (1.0 - 0.9 * done))
        steps, earned = self._episodes(shows, _epsilon(recipe, done))
        if shows and len(self.dqn.memory):
            self._losses += [self.dqn.learn() for _ in range(recipe.pretrain_batches)]
        self.round += 1
        means = {name: float(np.mean([each[name] for each in self._losses] or [0.0])) for name in LOSSES}
        return {"steps": steps, "earned": earned, **means}

    def _episodes(self, shows: bool, epsilon: float) -> tuple[int, float]:
        envs, recipe, memory = self._envs, self.recipe, self.dqn.memory
        # Every vectorized environment takes several seeds, though the base class does not say so.
        states, _ = envs.reset(seed=cast(Any, seeds(envs.num_envs, self.seed, "episodes", self.round)))
        seen = self._look(states)
        masks = self._masks()
        returns = NStepReturns(recipe.n_steps, shows)
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        earned, count = np.zeros(envs.num_envs), 0
        while goes_on.any():
            actions = (
                actions_of(recipe.rule, self._columns, states, masks)
                if shows
                else self.dqn.act(seen, masks, epsilon, self._rng)
            )
            states, rewards, terminated, truncated, infos = envs.step(actions)
            elapsed = durations(infos, envs.num_envs)
            gamma = np.where(terminated, 0.0, _discount(recipe, elapsed))
            following, next_masks = self._look(states), self._masks()
            before = {"seen": seen, "masks": masks, "actions": actions, "kept": goes_on}
            after = self._after(following, next_masks, terminated, truncated, infos)
            rows = returns.step(before, recipe.reward_scale * rewards, gamma, after)
            if rows is not None:
                memory.add(rows)
            earned += np.where(goes_on, rewards, 0.0)
            goes_on &= ~(terminated | truncated)
            seen, masks = following, next_masks
            count += 1
            if not shows and count % recipe.train_every == 0 and len(memory) >= recipe.batch:
                self._losses.append(self.dqn.learn())
        for rest in returns.flush({"seen": seen, "masks": masks}):
            memory.add(rest)
        return count, float(earned.mean())

    def _after(
        self,
        seen: npt.NDArray[np.float32],
        masks: npt.NDArray[np.bool_],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        infos: Mapping[str, Any],
    ) -> Arrays:
        """Return what followed the step; where an episode was cut off, its last observation, not the new episode's first."""
        cut = np.flatnonzero(truncated & ~terminated)
        if cut.size:
            seen, masks = seen.copy(), masks.copy()
            seen[cut] = self._look(np.stack([infos["final_obs"][row] for row in cut]))
            masks[cut] = np.stack([infos["final_info"]["action_masks"][row] for row in cut])
        return {"seen": seen, "masks": masks, "is_over": terminated | truncated}

    def _look(self, states: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            seen: npt.NDArray[np.float32] = self.network.features(torch.from_numpy(states)).numpy()
        return seen

    def _masks(self) -> npt.NDArray[np.bool_]:
        envs: Any = self._envs
        return envs.action_masks() if hasattr(envs, "action_masks") else np.stack(envs.call("action_masks"))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs to continue; call it between rounds."""
        return {"round": self.round, **self.dqn.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Continue from a state that `state_dict` returned."""
        self.round = int(state_dict["round"])
        self.dqn.load_state_dict(state_dict)


def _epsilon(recipe: Recipe, done: float) -> float:
    """Return the share of random actions when that share of the rounds is done."""
    left = 1.0 - min(1.0, done / recipe.exploring) if recipe.exploring > 0 else 0.0
    return recipe.epsilon_end + (recipe.epsilon - recipe.epsilon_end) * left


def _discount(recipe: Recipe, elapsed_h: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if recipe.horizon_h > 0:
        return np.exp(-elapsed_h / recipe.horizon_h)
    return np.full(elapsed_h.shape, recipe.gamma)


def settings_of(recipe: Recipe) -> DqnSettings:
    """Return the algorithm's settings."""
    return DqnSettings(
        batch=recipe.batch,
        double=recipe.double,
        tau=recipe.tau,
        huber=0.05,
        max_grad_norm=recipe.max_grad_norm,
        margin=recipe.margin,
        margin_weight=recipe.margin_weight,
    )
