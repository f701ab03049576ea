"""RL-TAPS as a system that can be trained: REINFORCE with a baseline for each step, over 20 episodes of one sequence.

The agent acts in `headway/RlTaps-v0`, GPU by GPU. The policy `rl-taps` (`policy`) serves it on clusters, where its decisions count
the GPUs on each node.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch

from policies.errors import TrainingError, WeightsError
from policies.learned.algorithms.distribution import MultiCategorical
from policies.learned.algorithms.reinforce import Reinforce, ReinforceSettings
from policies.learned.rl_taps.cluster import CLUSTER
from policies.learned.rl_taps.episodes import play, sequences_of
from policies.learned.rl_taps.image_columns import PAPER, ImageColumns
from policies.learned.rl_taps.imitating import Imitating
from policies.learned.rl_taps.network import RlTapsNetwork
from policies.learned.rl_taps.recipe import SCALED, STREAMING, THROUGHPUT, Recipe
from policies.learned.training.agents import AgentInEnvironment, Mask
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    CardDetails,
    SimulationBackend,
    TrainableSystem,
    TrainingSetup,
    WorkloadSpec,
)
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard, settings_of
from policies.learned.weights.trained_range import with_elastic_jobs

NAME = "rl-taps"
REINFORCED, ALONE = "rl-taps-reinforced", "rl-taps-alone"
"""Names of weights of imitation followed by reinforcement learning, and of reinforcement learning alone, where they come with
Headway beside those of imitation alone (NAME)."""
ENCODER = "rl-taps/1"
ENVIRONMENT = "headway/RlTaps-v0"
FIGURE = "mean_slowdown"
"""The validation figure."""


class HeadsAgent:
    """Gives each GPU to the likeliest slot of its softmax (section 4.5.2)."""

    deviations = 0

    def __init__(self, network: RlTapsNetwork, columns: ImageColumns) -> None:
        """Use that network, on the CPU."""
        self._network = network
        self._columns = columns

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Check the environment's images. Raises TrainingError for those of another cluster."""
        if env.observation_space.shape != self._columns.shape:
            raise TrainingError(
                f"the agent was trained on images of shape {self._columns.shape}, and the environment's have "
                f"{env.observation_space.shape}; give the cluster of its training, or train an agent for this one"
            )

    def act(self, observation: Any, mask: Mask | None) -> Any:  # noqa: ARG002 - the environment has no masks
        """Return the slot of each GPU, from 1 on, 0 for none."""
        with torch.inference_mode():
            return self._network.logits(torch.from_numpy(np.asarray(observation)[None]))[0].argmax(1).numpy()


def setup(recipe: Recipe) -> TrainingSetup:
    """Return the paper's cluster and workload; jobs slow each other down as the environment itself says."""
    return TrainingSetup(
        workloads=(WorkloadSpec("rl-taps", {"jobs": recipe.jobs}),),
        cluster=CLUSTER,
        slowdown=("none",),
        papers=("rl-taps",),
        places=lambda _, gpus: gpus <= recipe.widest,
        window=recipe.jobs,
    )


def card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries. The number of GPUs is among the settings, because the network depends on it."""
    gpus = sum(backend.gpus)
    kept = settings_of(recipe)
    if recipe.widest == PAPER.widest:
        del kept["widest"]  # as in the cards of earlier trainings, which can be continued so
    shapes = (f"{len(backend.gpus)} nodes, {gpus} GPUs",)
    return CardDetails(
        encoder=ENCODER,
        shapes=shapes,
        settings={**kept, "gpus": gpus},
        trained_range=with_elastic_jobs(backend.trained_range()),
    )


def columns_of(gpus: int, widest: int = PAPER.widest) -> ImageColumns:
    """Return the form of the images of that many GPUs, and of jobs of at most `widest`."""
    return replace(PAPER, gpus=gpus, widest=widest)


def agent(folder: str) -> AgentInEnvironment:
    """Return the trained agent in the environment of its training. Raises WeightsError."""
    network, columns, card = trained_network(folder)
    return AgentInEnvironment(HeadsAgent(network, columns), ENVIRONMENT, _options(card.recipe))


def shipped_agent(name: str) -> AgentInEnvironment:
    """Return an agent whose weights come with Headway: NAME, REINFORCED or ALONE. Raises WeightsError."""
    network, columns, card = trained_network("", name)
    return AgentInEnvironment(HeadsAgent(network, columns), ENVIRONMENT, _options(card.recipe))


def is_shipped(name: str) -> bool:
    """Return whether weights of that name come with Headway."""
    return (weights.pretrained() / f"{name}.json").is_file()


def trained_network(folder: str, shipped: str = NAME) -> tuple[RlTapsNetwork, ImageColumns, ModelCard]:
    """Return a trained network, the form of its images, and its card. Raises WeightsError.

    `shipped` names the weights that come with Headway and are used if `folder` is ''.
    """
    place, name = weights.located(folder, NAME, shipped)
    _, card = weights.load(place, name, system=NAME, encoder=ENCODER)
    try:
        columns = columns_of(int(card.recipe["gpus"]), int(card.recipe.get("widest", PAPER.widest)))
        network = RlTapsNetwork(columns, int(card.recipe["hidden"]), str(card.recipe["colours"]))
        _options(card.recipe)
    except (KeyError, ValueError, TypeError) as error:
        raise WeightsError(
            f"{place}: {name}.json: its recipe does not describe a network ({error!r}); train again"
        ) from error
    arrays, _ = weights.load(place, name, system=NAME, encoder=ENCODER, network=halves(network))
    weights.fill(network, {each: array.astype(np.float32) for each, array in arrays.items()})
    return network, columns, card


def halves(network: RlTapsNetwork) -> dict[str, torch.Tensor]:
    """Return the weights in half precision, in which they are stored: a million numbers in two megabytes."""
    return {name: tensor.half() for name, tensor in network.state_dict().items()}


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's options."""
    names = ("max_steps", "restart_s", "reward", "idle_weight", "fewer_weight")
    return {**{name: settings[name] for name in names}, "widest": settings.get("widest", PAPER.widest)}


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Imitate the rule of blocks; then make one gradient step in each round, on the episodes of `batch` sequences."""
    columns = columns_of(sum(backend.gpus), recipe.widest)
    options = _options(settings_of(recipe))
    envs = backend.envs(ENVIRONMENT, recipe.batch * recipe.episodes, **options)
    if envs.single_observation_space.shape != columns.shape:
        raise TrainingError(f"the environments show {envs.single_observation_space}, and the recipe {columns.shape}")
    torch.manual_seed(run.card.seed)
    network = RlTapsNetwork(columns, recipe.hidden, recipe.colours)
    optimizer = torch.optim.Adam(network.parameters(), recipe.learning_rate)
    settings = ReinforceSettings(gamma=recipe.gamma, entropy_weight=recipe.entropy_weight, normalize=recipe.normalize)
    learner = Reinforce(network, optimizer, settings, MultiCategorical)
    validate = Validation(run, backend, network, options)
    imitating = Imitating(envs, columns, network, recipe)
    run.keep(network=network, optimizer=optimizer, imitation=imitating.optimizer)
    if recipe.start:
        _begin_with(network, recipe.start)
    imitated = 0 if recipe.start else recipe.imitation_rounds
    for number in run.rounds(imitated, "imitation"):
        seeds = run.seeds("sequences", envs.num_envs)
        run.log(**imitating.run_round(seeds, run.rng("batches"), number))
        if (number + 1) % recipe.validate_every == 0 or number + 1 == imitated:
            validate()
    for number in run.rounds(recipe.rounds):
        if number == 0 and not imitated:
            validate()
        seeds = sequences_of(recipe, run.card.seed, number)
        run.log(**learner.update_all(play(envs, network, seeds, run.rng("actions"), recipe.max_steps)))
        if (number + 1) % recipe.validate_every == 0 or number + 1 == recipe.rounds:
            validate()


def _begin_with(network: RlTapsNetwork, folder: str) -> None:
    """Give the network the weights of another training. Raises WeightsError, and TrainingError for another size."""
    try:
        network.load_state_dict(trained_network(folder)[0].state_dict())
    except RuntimeError as error:
        raise TrainingError(
            f"start={folder}: its network has another size; give its hidden units and cluster"
        ) from error


class Validation:
    """Validates the weights as they are stored, in half precision."""

    def __init__(
        self, run: TrainingRun, backend: SimulationBackend, network: RlTapsNetwork, options: Mapping[str, Any]
    ) -> None:
        self._run = run
        self._backend = backend
        self._network = network
        self._stored = copy.deepcopy(network)
        self._agent = AgentInEnvironment(HeadsAgent(self._stored, network.columns), ENVIRONMENT, options)

    def __call__(self) -> None:
        """Record the figures of the present weights."""
        state = halves(self._network)
        self._stored.load_state_dict(state)
        figures = dict(self._backend.outcomes(self._agent))
        self._run.evaluate(figures[FIGURE], state, **figures)


_PAPERS = Recipe(reward=THROUGHPUT, restart_s=0.0, imitation_rounds=0, colours=SCALED, learning_rate=0.001)

SYSTEM = TrainableSystem(
    name=NAME,
    summary="every GPU to one of the jobs in ten slots, anew in every step; RL-TAPS (Ryu et al., CASCON 2020)",
    recipe=Recipe,
    setup=setup,
    card=card_details,
    train=train,
    agent=agent,
    policies=(NAME,),
    presets={
        "alone": Recipe(imitation_rounds=0, learning_rate=0.003),
        "paper": replace(_PAPERS, rounds=10_000, validate_every=200),
        "streaming": replace(_PAPERS, data=STREAMING, sequences=60, rounds=3_000, validate_every=60),
    },
)
