"""Training of RL-base: proximal policy optimization in the order of the paper's algorithm 1.

    while jobs run or wait:                      collect: `steps` steps of all environments
        state <- cluster and queue
        actions <- policy(state)                 until the agent waits, time stands still
        sleep for T; reward <- -W1 CS + W2 Util  what the environment gives (equation 2)
        update the policy                        update: `epochs` passes over the batch

The algorithm is `algorithms.ppo`, with masks for impossible actions. One point is chosen here: rewards are discounted by time and
not by steps, since a round has as many steps as jobs start in it, and a step may last many rounds (`skip_forced=True`: where
nothing can be started no action is asked for, which saves 86 % of the steps and changes no reward). That makes it a semi-Markov
decision process: a step of n rounds discounts what follows by gamma^n.

`PAPER` is the paper's own agent: its state of one number for each GPU, its rounds, and the network and settings of its code.

A *stage* begins new episodes everywhere, with seeds that follow from the training's seed and the stage's number. (It is a round
of `TrainingRun`; the paper uses the word for something else.) Between two stages only network, optimizer and that number matter:
there a training can be stopped, and continues to the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import torch

from policies.errors import TrainingError
from policies.learned.algorithms.ppo import Ppo, PpoSettings
from policies.learned.algorithms.rollout import Collector, Episode
from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.features import MANY, SCALAR
from policies.learned.contention_rl.network import MLP, NETWORKS, NODES, AgentNetwork, network_of
from policies.learned.contention_rl.placement_actions import ANY, EVEN, FEWEST, LISTS, PACKED, RULES
from policies.learned.training.run.seeding import seeds
from policies.learned.training.run.training_run import TrainingRun

Validate: TypeAlias = Callable[[AgentNetwork], Mapping[str, float]]
"""Returns figures by name of the network on validation traces."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters; those of PPO without a docstring are stable-baselines3's defaults, which the paper's code takes."""

    branch: str = "C"
    """A to E: the weights of contention and of utilization in the reward. With B the agent learns to defer no job."""
    reward: str = "contention"
    """contention (equation 2) or jct, which is not the paper's."""
    starts: str = FEWEST
    """The candidates that may start next: any or fewest. Equation 2 gives no order; the paper's code tries the candidate of the
    fewest GPUs first."""
    candidates: int = 3
    """K."""
    nodes: str = LISTS
    """How an action names nodes: lists, as in the paper, for small clusters, or rules, for clusters of any size."""
    split: str = EVEN
    """Division of a job's GPUs among nodes: even shares on 1, 2, 4, ... nodes as in the paper, or packed, for jobs of any size."""
    cells: str = MANY
    """scalar, one number for each cell as in the paper, or features."""
    mixes: tuple[str, ...] = ("normal", "heavy", "medium", "low")
    """Mixes of models, used in turn."""
    demands: tuple[int, ...] = (2, 4, 8)
    """GPUs of a job, as the paper's code draws them."""
    arrivals: str = "batch"
    """batch, as in the paper, or poisson at `load`."""
    load: float = 0.9
    decide: str = "events"
    """rounds, as in the paper, or events: waiting lasts until something happens, as in service."""
    envs: int = 32
    """Number of environments that are stepped together."""
    network: str = NODES
    """nodes, which has the same weights for every node, or mlp: two layers of `hidden` for the actor, and two for the critic."""
    hidden: int = 64
    """Width of the layers for a node, the queue and the cluster, or of those of an mlp."""
    pair: int = 32
    """Width of the layers for a candidate and for a placement; an mlp has none."""
    steps: int = 256
    """Steps of every environment in a batch."""
    batches: int = 3
    """Batches in a stage."""
    stages: int = 8
    epochs: int = 4
    """Passes over a batch; chosen, for speed."""
    minibatch: int = 512
    gamma: float = 0.95
    """Discount of a round; starts take no time. Chosen: 20 rounds are longer than a job."""
    gae_lambda: float = 0.5
    """Chosen: many jobs start while one runs, and the effect of each shows at once in the value of the state."""
    clip_range: float = 0.2
    learning_rate: float = 2e-3
    """Learning rate at the beginning. Chosen."""
    anneal: bool = True
    """The learning rate falls linearly to 0; without it, it stays."""
    entropy_weight: float = 0.003
    """Weight of the entropy; chosen."""
    value_weight: float = 0.5
    """Weight of the value's squared error."""
    max_grad_norm: float = 0.5
    """Norm at which gradients are clipped."""
    validate_every: int = 1
    """Stages between two validations, of which the best decides about the weights; the last stage is always validated."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        for name in (
            "envs",
            "hidden",
            "pair",
            "steps",
            "batches",
            "stages",
            "epochs",
            "minibatch",
            "learning_rate",
            "clip_range",
            "validate_every",
        ):
            if not getattr(self, name) > 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give more than 0")
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")
        for name in ("entropy_weight", "value_weight", "max_grad_norm"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        for name, known in (
            ("cells", (SCALAR, MANY)),
            ("network", NETWORKS),
            ("nodes", (LISTS, RULES)),
            ("split", (EVEN, PACKED)),
        ):
            if (value := getattr(self, name)) not in known:
                raise TrainingError(f"{name} is {value!r}; give {' or '.join(known)}")


PAPER = Recipe(
    branch="B",
    starts=ANY,
    cells=SCALAR,
    decide="rounds",
    envs=8,
    network=MLP,
    steps=256,
    batches=16,
    stages=8,
    epochs=10,
    minibatch=64,
    gamma=0.99,
    gae_lambda=0.95,
    learning_rate=3e-4,
    anneal=False,
    entropy_weight=0.0,
    validate_every=8,
)
"""The paper's agent (section IV; footnote 5 of section VI). Its figures 5 to 7 show branch B; the paper names no value of PPO, and
its code takes stable-baselines3's: batches of 2,048 steps, here of 8 environments. Only the last weights count, as in algorithm 1.
Chosen: the agent starts any candidate that fits, as the paper's own example does; the number of stages."""
PRESETS = {"paper": PAPER}


@dataclass(frozen=True, slots=True)
class StageReport:
    """Results of a stage."""

    stage: int
    """Number of the stage, from 1."""
    steps: int
    """Steps of all environments in all stages so far; forced decisions do not count."""
    rounds: float
    """Rounds that passed in all environments in this stage."""
    episodes: Sequence[Episode]
    """Episodes that ended in it."""
    losses: Mapping[str, float]
    """Means of the losses over its updates."""


class PpoTrainer:
    """Trains the network by PPO, stage by stage.

    Invariant between stages: `state_dict()`, the recipe and the seed determine all that follows.
    """

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], encoding: Encoding, recipe: Recipe, seed: int
    ) -> None:
        """`envs` have the observations and actions of the encoding, with masks. Raises TrainingError if not."""
        _check(envs, encoding)
        torch.manual_seed(seed)
        self.recipe = recipe
        self.seed = seed
        self.network = network_of(encoding, recipe.network, recipe.hidden, recipe.pair)
        self.stage = 0
        self._optimizer = torch.optim.Adam(self.network.parameters(), recipe.learning_rate, eps=1e-5, fused=True)
        self._collector = Collector(envs, recipe.steps, masked=True)
        self._rng = torch.Generator()
        self.ppo = Ppo(self.network, self._optimizer, settings_of(recipe), self._rng)

    # The loop

    def run_stage(self) -> StageReport:
        """Begin new episodes; collect batches and learn from each."""
        recipe, envs = self.recipe, self._collector.envs
        torch.use_deterministic_algorithms(True)
        self._rng.manual_seed(seeds(1, self.seed, "choices", self.stage)[0])
        self._collector.restart(seeds(envs.num_envs, self.seed, "episodes", self.stage))
        episodes: list[Episode] = []
        losses: list[dict[str, float]] = []
        rounds = 0.0
        for batch in range(recipe.batches):
            done = (self.stage + batch / recipe.batches) / recipe.stages if recipe.anneal else 0.0
            for group in self._optimizer.param_groups:
                group["lr"] = recipe.learning_rate * max(0.0, 1.0 - done)
            rollout = self._collector.collect(self.ppo.act)
            episodes += rollout.episodes
            rounds += 0.0 if rollout.elapsed is None else float(rollout.elapsed.sum())
            losses.append(self.ppo.update(rollout))
        self.stage += 1
        means = {name: float(np.mean([each[name] for each in losses])) for name in losses[0]}
        steps = self.stage * recipe.batches * recipe.steps * envs.num_envs
        return StageReport(self.stage, steps, rounds, episodes, means)

    # Leaving and going on

    @property
    def is_done(self) -> bool:
        """True if all stages are done."""
        return self.stage >= self.recipe.stages

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs to continue; call it between stages."""
        return {
            "stage": self.stage,
            "network": {name: tensor.clone() for name, tensor in self.network.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Continue from a state that `state_dict` returned."""
        self.stage = int(state_dict["stage"])
        self.network.load_state_dict(state_dict["network"])
        self._optimizer.load_state_dict(state_dict["optimizer"])


def settings_of(recipe: Recipe) -> PpoSettings:
    """Return the algorithm's settings: discounted by time."""
    return PpoSettings(
        by_time=True,
        **{
            name: getattr(recipe, name)
            for name in (
                "gamma",
                "gae_lambda",
                "clip_range",
                "epochs",
                "minibatch",
                "entropy_weight",
                "value_weight",
                "max_grad_norm",
            )
        },
    )


def train(run: TrainingRun, training: PpoTrainer, validate: Validate) -> None:
    """Carry out the whole training. Where weights are validated, the first figure of `validate` decides which are best."""
    recipe = training.recipe
    run.keep(training=training)
    for number in run.rounds(recipe.stages):
        progress = training.run_stage()
        run.log(steps=progress.steps, **progress.losses, **_mean_rewards(progress))
        if (number + 1) % recipe.validate_every and number + 1 != recipe.stages:
            continue
        figures = validate(training.network)
        run.evaluate(next(iter(figures.values())), training.network.state_dict(), **figures)


def _mean_rewards(report: StageReport) -> dict[str, float]:
    """Return the mean reward of the episodes that ended, where one did."""
    return {"episode_reward": float(np.mean([each.reward for each in report.episodes]))} if report.episodes else {}


def _check(envs: gymnasium.vector.VectorEnv[Any, Any, Any], encoding: Encoding) -> None:
    seen, actions = envs.single_observation_space, envs.single_action_space
    if seen.shape != encoding.shape or getattr(actions, "n", None) != encoding.actions:
        raise TrainingError(
            f"the environments show {seen} and take {actions}, where the encoding has an array of {encoding.shape} and "
            f"{encoding.actions} actions; make both with the same cluster, candidates, nodes, split and cells"
        )
