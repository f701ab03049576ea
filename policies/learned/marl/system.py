"""MARL as a system that can be trained: several schedulers of one fat-tree, by actor-critic, after imitation of a greedy control.

The agent acts in `headway/Marl-v0`, for all schedulers in turn; the policy `marl` (`policy`) serves it on clusters too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import torch

from policies.errors import TrainingError, WeightsError
from policies.learned.marl.graphs import Layout
from policies.learned.marl.learning import ActorCritic, Imitation
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.playing import Messages, Player
from policies.learned.marl.recipe import DGX1, MIXED, PAPER, POWER8, PROGRESS, TWO_SIZES, Recipe
from policies.learned.training.agents import AgentInEnvironment, Mask
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    FIGURE,
    CardDetails,
    SimulationBackend,
    TrainableSystem,
    TrainingSetup,
    WorkloadSpec,
)
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard, settings_of

NAME = "marl"
SINGLE = "marl-single"
"""Weights of one agent that was trained to manage all servers (section VI-E)."""
ENCODER = "marl/1"
ENVIRONMENT = "headway/Marl-v0"
_SERVERS = 100
"""Servers to which the recipe's numbers of jobs refer."""
_INTERVAL_S = 1800.0
_SERVERS_OF = {
    POWER8: {"gpus": 4, "sockets": 2}, DGX1: {"gpus": 8, "sockets": 2}, TWO_SIZES: {"gpus": 6, "sockets": 2},
}  # fmt: skip
_SMALL = {"gpus": 2, "sockets": 1}
_SHARES = (0.2, 0.4)
"""Shares of the smallest and of the Power8 servers in `mixed`; the others are DGX-1."""


class SchedulersAgent:
    """Takes the likeliest action for the scheduler that acts."""

    deviations = 0

    def __init__(self, recipe: Recipe, state: Mapping[str, weights.Array | torch.Tensor]) -> None:
        """Use the weights `state`, on the CPU."""
        self._recipe = recipe
        self._state = state
        self._layout: Layout | None = None
        self._network: MarlNetwork
        self._messages: Messages

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Make the network for the environment's data center. Raises TrainingError for one that the weights do not fit."""
        layout: Layout = env.get_wrapper_attr("layout")
        if self._layout is not layout:
            self._network = MarlNetwork(layout, self._recipe)
            try:
                tensors = {name: torch.as_tensor(np.asarray(array)) for name, array in self._state.items()}
                self._network.load_state_dict(tensors)
            except RuntimeError as error:
                raise TrainingError(
                    "the agent was trained for another data center, or for other observations; give those of its training "
                    "(network=scores has weights for data centers of any size), or train an agent for this one"
                ) from error
            self._layout = layout
        self._messages = Messages(self._network, 1)

    def act(self, observation: Any, mask: Mask | None) -> Any:
        """Return the likeliest of the possible actions."""
        seen = {name: np.asarray(cells)[None] for name, cells in observation.items()}
        acting = seen["scheduler"].argmax(1)
        vectors = self._messages.update(seen, acting)
        own = {name: torch.from_numpy(seen[name][[0], acting]) for name in self._network.layout.shapes}
        with torch.inference_mode():
            logits, _ = self._network.decide(own, torch.from_numpy(acting), vectors, torch.from_numpy(seen["inter"]))
        scores = logits[0].numpy()
        return int(np.argmax(scores if mask is None else np.where(mask, scores, -np.inf)))


def setup(recipe: Recipe) -> TrainingSetup:
    """Return the fat-tree and the workloads of a recipe; jobs slow each other down as the environment itself says."""
    servers = recipe.k**3 // 4
    gaps = [_INTERVAL_S * _SERVERS / (jobs * servers) for jobs in recipe.jobs]
    counts = [max(1, round(jobs * servers / _SERVERS * recipe.intervals)) for jobs in recipe.jobs]
    return TrainingSetup(
        workloads=tuple(
            WorkloadSpec(
                "marl", {"jobs": count, "mean_gap_s": gap, "arrivals": recipe.arrivals, "schedulers": recipe.k}
            )
            for count, gap in zip(counts, gaps, strict=True)
        ),
        cluster={"nodes": _nodes(recipe), "network": {"kind": "fat-tree", "k": recipe.k}},
        slowdown=("none",),
        papers=("marl",),
        window=counts[0],
    )


def _nodes(recipe: Recipe) -> list[dict[str, int]]:
    """Return the servers of the fat-tree in their order, which is that of the environment."""
    pod = recipe.k**2 // 4
    if recipe.architecture != MIXED:
        return [{"count": pod * recipe.k, **_SERVERS_OF[recipe.architecture]}]
    small, medium = (round(share * pod) for share in _SHARES)
    kinds = [_SMALL] * small + [_SERVERS_OF[POWER8]] * medium + [_SERVERS_OF[DGX1]] * (pod - small - medium)
    order = sorted(range(pod), key=lambda place: (place * 7 % pod, place))
    return [{"count": 1, **kinds[place]} for place in order] * recipe.k


def card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries."""
    schedulers = "1 scheduler" if recipe.single else f"{recipe.k} schedulers"
    shapes = (f"a fat-tree of {len(backend.gpus)} servers, {sum(backend.gpus)} GPUs, {schedulers}",)
    return CardDetails(encoder=ENCODER, shapes=shapes, settings=settings_of(recipe))


def options_of(recipe: Recipe) -> dict[str, Any]:
    """Return the environment's options of a training."""
    shows = "jobs" if recipe.network == PAPER else "types"
    return {
        "k": recipe.k, "architecture": recipe.architecture, "single": recipe.single, "shows": shows, "others": recipe.teacher,
        "reward": recipe.reward,
    }  # fmt: skip


def agent(folder: str, shipped: str = NAME) -> AgentInEnvironment:
    """Return the trained agent in the environment of its training; without a folder, the one that comes with Headway by that name.
    Raises WeightsError."""
    place, name = weights.located(folder, NAME, shipped)
    arrays, card = weights.load(place, name, system=NAME, encoder=ENCODER)
    recipe = recipe_of(card)
    return AgentInEnvironment(SchedulersAgent(recipe, arrays), ENVIRONMENT, options_of(recipe), needs=("shows",))


def is_shipped(name: str = NAME) -> bool:
    """Return whether weights of that name come with Headway."""
    return (weights.pretrained() / f"{name}.json").is_file()


def recipe_of(card: ModelCard) -> Recipe:
    """Return the recipe of a card. Raises WeightsError."""
    known = {each.name for each in fields(Recipe)}
    values: dict[str, Any] = {name: value for name, value in card.recipe.items() if name in known}
    try:
        # A card has several numbers as one text.
        return Recipe(**{**values, "jobs": tuple(map(float, str(values["jobs"]).split(",")))})
    except (KeyError, TypeError, ValueError, TrainingError) as error:
        raise WeightsError(f"{card.system}: the recipe does not describe a network ({error}); train again") from error


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Imitate the rule; then learn from rewards."""
    envs: Any = backend.envs(ENVIRONMENT, recipe.episodes, workers=recipe.workers, **options_of(recipe))
    torch.manual_seed(run.card.seed)
    network = MarlNetwork(envs.get_attr("layout")[0], recipe)
    optimizer = torch.optim.Adam(network.parameters(), recipe.learning_rate)
    imitation, learner = Imitation(network, recipe), ActorCritic(network, optimizer, recipe)
    run.keep(network=network, optimizer=optimizer, imitation=imitation.optimizer)
    validate = _Validation(run, backend, network, recipe)
    asking, playing = Player(envs, network, with_advice=True), Player(envs, network)
    for number in run.rounds(recipe.imitation_rounds, "imitation"):
        # States that the network itself meets are in the data because its first mistakes lead to states that the rule never meets.
        by_rule = np.arange(recipe.episodes) >= (0 if number == 0 else recipe.episodes // 2)
        played = asking.play(run.seeds("episodes", recipe.episodes), _draws(run), by_rule)
        run.log(**imitation.update(played, run.rng("batches"), number))
        validate.if_due(number, recipe.imitation_rounds)
    for number in run.rounds(recipe.rounds):
        if number == 0 and not recipe.imitation_rounds:
            validate()
        played = playing.play(run.seeds("episodes", recipe.episodes), _draws(run))
        run.log(reward=float(played.rewards.mean()), **learner.update(played, run.rng("batches")))
        validate.if_due(number, recipe.rounds)


def _draws(run: TrainingRun) -> torch.Generator:
    return torch.Generator().manual_seed(int(run.rng("actions").integers(1 << 31)))


class _Validation:
    """Validates the weights of a training."""

    def __init__(self, run: TrainingRun, backend: SimulationBackend, network: MarlNetwork, recipe: Recipe) -> None:
        self._run = run
        self._backend = backend
        self._network = network
        self._recipe = recipe

    def if_due(self, number: int, rounds: int) -> None:
        """Validate after the rounds in which it is due, and after the last one."""
        if (number + 1) % self._recipe.validate_every == 0 or number + 1 == rounds:
            self()

    def __call__(self) -> None:
        """Record the figures of the present weights. Raises TrainingError if they leave jobs unfinished."""
        state = copy.deepcopy(self._network.state_dict())
        served = AgentInEnvironment(SchedulersAgent(self._recipe, state), ENVIRONMENT, options_of(self._recipe))
        figures = dict(self._backend.outcomes(served))
        if FIGURE not in figures:
            raise TrainingError("the agent left jobs unfinished in validation; train with fewer jobs, or more servers")
        self._run.evaluate(figures[FIGURE], state, **figures)


SYSTEM = TrainableSystem(
    name=NAME,
    summary="schedulers of one data center place workers and parameter servers; MARL (Zhao and Wu, TNSM 2021)",
    recipe=Recipe,
    setup=setup,
    card=card_details,
    train=train,
    policies=(NAME,),
    agent=agent,
    presets={
        "alone": Recipe(imitation_rounds=0),
        "paper": Recipe(imitation_rounds=0, network=PAPER, shared=False, encoded=128, reward=PROGRESS, jobs=(15.0,)),
    },
)
