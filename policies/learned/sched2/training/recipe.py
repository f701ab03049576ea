"""How SCHED2 is trained: deep Q-learning in the order of the paper (section III-F), with what has become usual since.

    for each episode (a trace of 1,000 jobs):
        state <- GPUs, jobs, statistics
        repeat: action <- epsilon-greedy on Q(state); the environment gives reward and next state
                keep the transition (prioritized replay); learn from a batch of them

The paper names DQN (Mnih et al. 2015), epsilon-greedy and prioritized replay (Schaul et al. 2016). Added here: double Q-learning
(van Hasselt et al. 2016), a dueling network, returns over several steps, and demonstrations with a large-margin loss (DQfD, Hester
et al. 2018), so that learning begins where a good rule is. Which rule: the best that a search found among those that the network's
linear part can be (`search`), or, without a search, the one of `controls`. The rule stays in the network as it was found; what is
learned is added to it.

Rewards are discounted by time and not by steps: a step that starts a job takes none, and a wait may take a minute or hours.
With gamma = exp(-elapsed / horizon) the reward `completions` is the discounted form of minimizing JCT: see the environment.

A *round* is an episode of every environment, begun with seeds that follow from the training's seed and the round's number; a round
of search is `rules` episodes on each of `traces` traces, which the environments play by themselves. Between two rounds all that
goes on is what `state_dict` has.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from policies.errors import TrainingError
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.sched2.network import QNetwork
from policies.learned.sched2.state.state_layout import StateLayout
from policies.learned.sched2.state.window import FIRST, WINDOWS
from policies.learned.sched2.training.demonstrations import RULES, actions_of
from policies.learned.sched2.training.search import Search
from policies.learned.sched2.training.search import actions_of as rule_actions
from policies.learned.training.run.seeding import generator, seeds

EFFECTIVENESS, COMPLETIONS = "effectiveness", "completions"
Rows = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives none but J = 10; all are chosen."""

    gaps_s: tuple[float, ...] = (129.0,)
    """Mean seconds between two submits of the workloads that are trained with, in turn."""
    window: str = FIRST
    """first (the paper's) or widest: which J jobs of the queue can be chosen."""
    candidates: int = 10
    """J."""
    reward: str = COMPLETIONS
    """effectiveness (the paper's) or completions (JCT)."""
    horizon_h: float = 8.0
    """Hours in which a reward to come falls to 1/e of its worth."""
    worth: float = 0.005
    """Of a reward of 1 to the network: so that Q is about 1."""
    hidden: int = 32
    """Numbers in the network for a job and the cluster."""
    server: int = 16
    """And for a server."""
    envs: int = 16
    searches: int = 60
    """Rounds of search; 0: none."""
    rules: int = 32
    """That are compared in a round."""
    traces: int = 16
    """That they are compared on."""
    unit: float = 0.001
    """What 1 of the rule's is to the network."""
    rounds: int = 4
    """Of Q-learning: episodes of every environment."""
    demonstrations: int = 1
    """Of these the first so many show what a rule does: the one that was found, or"""
    rule: str = "local-sif"
    """this one, where nobody searched."""
    doubt: float = 0.05
    """By what share a round of Q-learning must be better than the search's rule to be kept instead: thirty validation traces
    cannot tell less from chance."""
    margin: float = 0.003
    """By how much the demonstrated action's Q should be above all others'."""
    imitation: float = 1.0
    """Weight of the large-margin loss."""
    memory: int = 120_000
    """Transitions."""
    steps: int = 32
    """Of a return."""
    every: int = 3
    """Steps of all environments between two batches."""
    batch: int = 128
    warm: int = 1000
    """Batches after the demonstrations."""
    learning_rate: float = 2e-4
    """At the beginning; it falls to a tenth in a straight line."""
    epsilon: float = 0.02
    """Share of random actions at first; it falls to a fifth in a straight line."""
    follow: float = 0.005
    """Share of the network that its slow copy takes over with every batch."""
    alpha: float = 0.6
    beta: float = 0.4
    """Of prioritized replay; the latter goes to 1."""
    max_gradient: float = 10.0

    def __post_init__(self) -> None:
        """Raises TrainingError for numbers that cannot be."""
        above = (
            "horizon_h",
            "hidden",
            "server",
            "envs",
            "traces",
            "rounds",
            "memory",
            "steps",
            "every",
            "batch",
            "learning_rate",
        )
        for name in (*above, "max_gradient", "candidates"):
            if not getattr(self, name) > 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give more than 0")
        for name in ("epsilon", "follow", "alpha", "beta", "doubt"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")
        for name in ("margin", "imitation", "demonstrations", "warm", "searches"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        for name, known in {
            "window": WINDOWS,
            "reward": (EFFECTIVENESS, COMPLETIONS),
            "rule": RULES,
        }.items():
            if (value := getattr(self, name)) not in known:
                raise TrainingError(f"{name} is {value!r}; give {' or '.join(known)}")
        if self.rules < 3:
            raise TrainingError(f"rules is {self.rules}; give at least 3, of which one can be better than the others")
        if not self.gaps_s or min(self.gaps_s) <= 0:
            raise TrainingError(f"gaps_s is {self.gaps_s}; give seconds, more than 0")


class DqnTrainer:
    """Invariant between rounds: all that follows is decided by `state_dict()`, the recipe and the seed."""

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], layout: StateLayout, recipe: Recipe, seed: int
    ) -> None:
        """Environments that show that layout, tell the time, play rules (`call_each` of `play`), and begin anew in the step in
        which they end. Raises TrainingError where they show another layout."""
        if envs.single_observation_space.shape != (layout.size,):
            raise TrainingError(
                f"the environments show {envs.single_observation_space}, where the layout has {layout.size} numbers; make both "
                "with the same cluster and candidates"
            )
        torch.manual_seed(seed)
        self.recipe = recipe
        self.seed = seed
        self.round = 0
        self.search = Search(recipe.rules, seed)
        self.network = QNetwork(layout, recipe.hidden, recipe.server)
        self._layout = layout
        self._envs = envs
        self._slow = copy.deepcopy(self.network)
        learned = [each for name, each in self.network.named_parameters() if not name.startswith("rule.")]
        self._optimizer = torch.optim.Adam(learned, recipe.learning_rate, fused=True)
        self._memory = PrioritizedReplay(
            recipe.memory, seed=seed, alpha=recipe.alpha, beta=recipe.beta, anneal=20_000, floor=1e-4
        )
        self._losses: list[tuple[float, ...]] = []

    # Search

    @property
    def searched(self) -> int:
        """Rounds of search that are done."""
        return self.search.rounds

    def run_search(self) -> dict[str, float]:
        """Play rules against each other, and learn which way better ones lie. What they came to, in the objective's unit."""
        costs = self._costs(self.search.draw(), seeds(self.recipe.traces, self.seed, "search", self.searched))
        self.search.learn(costs)
        with torch.no_grad():
            self.network.rule.weight.copy_(torch.from_numpy(self.recipe.unit * self.search.mean[None]))
            self._slow.rule.weight.copy_(self.network.rule.weight)
        of_rule = costs.mean(axis=1)
        return {"mean_rule": float(of_rule.mean()), "best_rule": float(of_rule.min())}

    def _costs(self, rules: npt.NDArray[np.float64], traces: list[int]) -> npt.NDArray[np.float64]:
        """Of an episode with each rule on each of those traces (rules, traces)."""
        envs: Any = self._envs
        count = envs.num_envs
        costs = np.full((len(rules), len(traces)), np.inf)
        played = envs.call_each("play", [(rules, traces[env::count]) for env in range(count)])
        for env, outcomes in enumerate(played):
            for place, of_rules in zip(range(env, len(traces), count), outcomes, strict=True):
                costs[:, place] = [self._cost(outcome) for outcome in of_rules]
        return costs

    def _cost(self, outcome: Mapping[str, float]) -> float:
        if outcome["finished"] < outcome["jobs"]:
            return np.inf
        return -outcome["effectiveness"] if self.recipe.reward == EFFECTIVENESS else outcome["avg_jct_s"]

    # Q-learning

    def run_round(self) -> dict[str, float]:
        """New episodes everywhere, each to its end: act, keep, learn. Means of what was seen."""
        recipe = self.recipe
        done = self.round / recipe.rounds
        shows = self.round < recipe.demonstrations
        self._rng = generator(self.seed, "exploration", self.round)
        self._losses = []
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.learning_rate * (1.0 - 0.9 * done)
        steps, earned = self._episodes(shows, recipe.epsilon * (1.0 - 0.8 * done))
        if shows:
            for _ in range(recipe.warm):
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
        returns = _Returns(recipe.steps, shows)
        goes_on = np.ones(envs.num_envs, dtype=np.bool_)
        earned, count = np.zeros(envs.num_envs), 0
        while goes_on.any():
            actions = self._demonstrated(states, seen, masks) if shows else self.act(seen, masks, epsilon)
            states, rewards, terminated, truncated, infos = envs.step(actions)
            over = terminated | truncated
            elapsed = np.asarray(infos.get("elapsed_h", np.zeros(envs.num_envs)), dtype=np.float64)
            gamma = np.where(over, 0.0, np.exp(-elapsed / recipe.horizon_h))
            following, next_masks = self._look(states), self._masks()
            rows = returns.step(seen, masks, actions, recipe.worth * rewards, gamma, following, next_masks, goes_on)
            if rows is not None:
                self._memory.add(rows)
            earned += np.where(goes_on, rewards, 0.0)
            goes_on &= ~over
            seen, masks = following, next_masks
            count += 1
            if not shows and count % recipe.every == 0 and len(self._memory) >= recipe.batch:
                self._learn()
        return count, float(earned.mean())

    def _demonstrated(
        self, states: npt.NDArray[np.float32], seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """What the rule does that was found, or the simple one."""
        if not self.searched:
            return actions_of(self.recipe.rule, self._layout, states, masks)
        _, own, _, _ = self.network.shape.split(torch.from_numpy(seen))
        return rule_actions(np.repeat(self.search.mean[None], len(masks), axis=0), own.numpy(), masks)

    def act(self, seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_], epsilon: float) -> npt.NDArray[np.int64]:
        """The best action of each, or with a chance of epsilon any that is possible."""
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

    # Learning

    def _learn(self) -> None:
        """One step down the gradient of the squared error of Q, and of the margin where somebody showed what to do."""
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
        (loss + recipe.imitation * margin_loss).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), recipe.max_gradient)
        self._optimizer.step()
        self._memory.update(sample.indices, errors.detach().abs().numpy())
        with torch.no_grad():
            for slow, fast in zip(self._slow.parameters(), self.network.parameters(), strict=True):
                slow.lerp_(fast, recipe.follow)
        self._losses.append((float(loss.detach()), float(margin_loss.detach()), float(taken.detach().mean())))

    def _targets(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Rewards, and what comes after: the slow network's worth of the action that the network prefers (double Q-learning)."""
        with torch.no_grad():
            following, masks = rows["next_seen"].float(), rows["next_masks"]
            best = self.network.q_values(following, masks).argmax(1, keepdim=True)
            worth = self._slow.q_values(following, masks).gather(1, best).squeeze(1)
            return rows["returns"] + rows["gammas"] * worth

    # Leaving and going on

    def state_dict(self) -> dict[str, Any]:
        """All from which `load_state_dict` goes on; taken between rounds."""
        return {
            "round": self.round,
            "search": self.search.state_dict(),
            "network": {name: tensor.clone() for name, tensor in self.network.state_dict().items()},
            "slow": {name: tensor.clone() for name, tensor in self._slow.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
            "memory": self._memory.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Go on from there."""
        self.round = int(state_dict["round"])
        self.search.load_state_dict(state_dict["search"])
        self.network.load_state_dict(state_dict["network"])
        self._slow.load_state_dict(state_dict["slow"])
        self._optimizer.load_state_dict(state_dict["optimizer"])
        self._memory.load_state_dict(state_dict["memory"])


class _Returns:
    """Makes transitions over several steps. Invariant: `_open` are the last steps, whose returns are not yet whole."""

    def __init__(self, steps: int, shown: bool) -> None:
        self._steps = steps
        self._shown = shown
        self._open: list[Rows] = []

    def step(
        self,
        seen: npt.NDArray[np.float32],
        masks: npt.NDArray[np.bool_],
        actions: npt.NDArray[np.int64],
        rewards: npt.NDArray[np.float64],
        gammas: npt.NDArray[np.float64],
        following: npt.NDArray[np.float32],
        next_masks: npt.NDArray[np.bool_],
        kept: npt.NDArray[np.bool_],
    ) -> Rows | None:
        """All environments have made a step: rows that are whole now, those that are not `kept` left out.

        A gamma of 0 ends an episode: nothing after it counts, and who begins anew needs no care.
        """
        self._open.append(
            {
                "seen": seen.astype(np.float16),
                "masks": masks,
                "actions": actions,
                "returns": np.zeros(len(actions)),
                "gammas": np.ones(len(actions)),
                "kept": kept.copy(),
            }
        )
        for row in self._open:
            row["returns"] += row["gammas"] * rewards
            row["gammas"] *= gammas
        if len(self._open) < self._steps:
            return None
        first = self._open.pop(0)
        keep = first.pop("kept") & (first["masks"].sum(1) > 1)
        if not keep.any():
            return None
        rows = {
            **first,
            "next_seen": following.astype(np.float16),
            "next_masks": next_masks,
            "shown": np.full(len(actions), self._shown),
        }
        rows |= {name: rows[name].astype(np.float32) for name in ("returns", "gammas")}
        return {name: column[keep] for name, column in rows.items()}
