"""DL2 as a system of `headway-policy train`: a supervised phase, then reinforcement learning.

The agent acts in `headway/ElasticAllocation-v0`; for all-reduce jobs, the policy `dl2` (`policy`) serves it on clusters too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from policies.errors import TrainingError, UnfinishedError, WeightsError
from policies.learned.dl2.network import FLAT, DL2Network
from policies.learned.dl2.recipe import ENGINE, JOB, PAPER_RECIPE, PPO, PPORecipe, Recipe
from policies.learned.dl2.reinforcement.on_policy import OnPolicyLearning
from policies.learned.dl2.reinforcement.slots import SlotLearning
from policies.learned.dl2.serving import Served
from policies.learned.dl2.state_columns import StateColumns
from policies.learned.dl2.supervised import Supervised
from policies.learned.dl2.teachers import TEACHERS, actions_of
from policies.learned.dl2.without_bundle import ServedWithoutBundle
from policies.learned.training.agents import AgentInEnvironment, NetworkAgent
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
from policies.learned.weights.trained_range import with_elastic_jobs

NAME, PPO_NAME = "dl2", "dl2-ppo"
"""The agent with the paper's teacher and algorithm, and as Headway trains it."""
ENCODER = "dl2/1"
ENVIRONMENT = "headway/ElasticAllocation-v0"
TYPES = 8
"""L: the models of the paper's table 1, which the environment distinguishes by default."""
_NEEDS = ("concurrent",)
ACTOR = "actor."
"""Begin of the names of the policy network's tensors, which are all that is served."""


def setup(recipe: Recipe) -> TrainingSetup:
    """Return nodes of two GPUs, and the paper's workload; jobs affect each other by their placement alone."""
    jobs = {"mean_gap_s": recipe.mean_gap_s, "jobs": recipe.jobs, "models": recipe.models}
    return TrainingSetup(
        workloads=(WorkloadSpec("dl2", jobs),),
        cluster=f"{recipe.nodes}x2",
        slowdown=("none",),
        papers=("dl2-measured" if recipe.measured else "dl2",),
        window=recipe.jobs,
        one_by_one=True,
    )


def card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries. Raises TrainingError, and PolicyError, for an unknown teacher: before a folder is begun."""
    if recipe.teacher not in TEACHERS:
        backend.agent(recipe.teacher)
    gpus = backend.gpus
    return CardDetails(
        encoder=ENCODER,
        shapes=(f"{len(gpus)} nodes, {sum(gpus)} GPUs",),
        settings=settings_of(recipe),
        trained_range=with_elastic_jobs(backend.trained_range()),
    )


def agent(folder: str, system: str = NAME) -> AgentInEnvironment:
    """Return the trained agent of that system in the environment of its training. Raises WeightsError."""
    network, columns, card = trained_network(folder, system, system)
    return _served(network, columns, {} if card.recipe.get("bundle", True) else {"bundle": False})


def trained_network(folder: str, shipped: str = NAME, system: str = NAME) -> tuple[DL2Network, StateColumns, ModelCard]:
    """Return the networks with the trained weights of the policy network, and their card. Raises WeightsError.

    `shipped` names the weights that come with Headway and are used if `folder` is ''.
    """
    place, name = weights.located(folder, system, shipped)
    there, card = weights.load(place, name, system=system, encoder=ENCODER)
    try:
        columns = StateColumns(int(card.recipe["concurrent"]), TYPES)
        # Earlier versions had only the paper's network.
        kind = str(card.recipe.get("network", FLAT))
        network = DL2Network(columns, int(card.recipe["neurons"]), int(card.recipe["layers"]), kind=kind)
    except (KeyError, ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise WeightsError(
            f"{place}: {name}.json: its recipe does not describe a network ({error!r}); train again"
        ) from error
    # Weights of earlier versions have the value network too.
    form = {each: tensor for each, tensor in network.state_dict().items() if each.startswith(ACTOR) or each in there}
    arrays, _ = weights.load(place, name, system=system, encoder=ENCODER, network=form)
    weights.fill(
        network.actor,
        {each.removeprefix(ACTOR): array for each, array in arrays.items() if each.startswith(ACTOR)},
    )
    return network, columns, card


def _served(network: DL2Network, columns: StateColumns, options: Mapping[str, object]) -> AgentInEnvironment:
    served = Served(network, columns)
    logits = served if options.get("bundle", True) else ServedWithoutBundle(served, columns)
    return _acting(NetworkAgent(logits, columns.shape), columns, options)


def _acting(found: NetworkAgent, columns: StateColumns, options: Mapping[str, object]) -> AgentInEnvironment:
    return AgentInEnvironment(found, ENVIRONMENT, {"concurrent": columns.jobs, **options}, needs=_NEEDS)


def teacher_agent(
    recipe: Recipe, columns: StateColumns, options: Mapping[str, object], backend: SimulationBackend
) -> AgentInEnvironment:
    """Return the recipe's teacher as an agent in the environment with these options.

    Raises TrainingError, and PolicyError for a policy that cannot be loaded.
    """
    if recipe.teacher not in TEACHERS:
        found = backend.agent(recipe.teacher)
        return AgentInEnvironment(found, ENVIRONMENT, {"concurrent": columns.jobs, **options}, needs=_NEEDS)
    teach = partial(actions_of, recipe.teacher, columns, bundle=recipe.bundle, workers=recipe.teacher_workers)

    def choose(states: Tensor, masks: Tensor) -> Tensor:
        chosen = torch.from_numpy(teach(states.numpy(), masks.numpy()))
        return torch.nn.functional.one_hot(chosen, columns.actions)

    return _acting(NetworkAgent(choose, columns.shape), columns, options)


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Imitate the teacher until its performance is reached, then learn by reinforcement."""
    columns = StateColumns(recipe.concurrent, TYPES)
    options: dict[str, object] = {} if recipe.speeds == ENGINE else {"speeds": recipe.speeds}
    if not recipe.bundle:
        options["bundle"] = False
    # In this process: a step of all environments takes less time than to wake up other processes.
    is_ppo = recipe.algorithm == PPO
    reward = JOB if is_ppo else recipe.reward
    envs = backend.envs(ENVIRONMENT, recipe.envs, workers=0, concurrent=recipe.concurrent, reward=reward, **options)
    if envs.single_observation_space.shape != columns.shape:
        raise TrainingError(
            f"the environments show {envs.single_observation_space}, and the recipe {columns.shape}; give the default types"
        )
    torch.manual_seed(run.card.seed)
    network = DL2Network(columns, recipe.neurons, recipe.layers, kind=recipe.network, value_per_job=is_ppo)
    if recipe.start:
        _begin_with(network, recipe.start, run.card.system)
    supervised = Supervised(envs, columns, network, recipe)
    learning = (
        OnPolicyLearning(envs, network, recipe)
        if is_ppo
        else SlotLearning(envs, columns, network, recipe, run.card.seed)
    )
    run.keep(network=network, supervised=supervised.optimizer, **learning.parts())
    evaluate = partial(_evaluate, run, backend, network, columns, options)
    if recipe.supervised_rounds and not recipe.start:
        _imitate(run, backend, recipe, supervised, teacher_agent(recipe, columns, options, backend), evaluate)
    for number in run.rounds(recipe.rounds):
        critic_only = recipe.value_baseline and number < recipe.critic_rounds
        seeds, rng = run.seeds("episodes", recipe.envs), run.rng("actions")
        run.log(**learning.run_round(seeds, rng, critic_only=critic_only, number=number))
        is_due = (number + 1) % recipe.validate_every == 0 and not critic_only
        if is_due or number + 1 == recipe.rounds:
            evaluate()


def _begin_with(network: DL2Network, folder: str, system: str) -> None:
    """Give the policy network the weights of another training. Raises WeightsError, and TrainingError for another size."""
    try:
        network.actor.load_state_dict(trained_network(folder, system, system)[0].actor.state_dict())
    except RuntimeError as error:
        raise TrainingError(
            f"start={folder}: its networks have another size; give its neurons, layers and concurrent"
        ) from error


def _imitate(
    run: TrainingRun,
    backend: SimulationBackend,
    recipe: Recipe,
    supervised: Supervised,
    teacher: AgentInEnvironment,
    evaluate: Callable[[], dict[str, Any]],
) -> None:
    goal = backend.validate(teacher)[FIGURE] * (1.0 + recipe.supervised_tolerance)
    for _ in run.rounds(recipe.supervised_rounds, "supervised"):
        seeds = run.seeds("episodes", recipe.envs)
        shown = supervised.shown(seeds) if recipe.teacher in TEACHERS else backend.demonstrate(teacher, seeds)
        run.log(**supervised.run_round(shown, run.rng("batches")))
        if evaluate()[FIGURE] <= goal:
            run.enough()


def _evaluate(
    run: TrainingRun,
    backend: SimulationBackend,
    network: DL2Network,
    columns: StateColumns,
    options: Mapping[str, object],
) -> dict[str, Any]:
    try:
        figures = dict(backend.validate(_served(network, columns, options)))
    except UnfinishedError as error:
        run.evaluated_badly(str(error))
        return {FIGURE: inf}
    actor = {name: tensor for name, tensor in network.state_dict().items() if name.startswith(ACTOR)}
    run.evaluate(figures[FIGURE], actor, **figures)
    return figures


SYSTEM = TrainableSystem(
    name=NAME,
    summary="workers and parameter servers for elastic jobs, slot by slot; DL2 (Peng et al., TPDS 2021)",
    recipe=Recipe,
    setup=setup,
    card=card_details,
    train=train,
    policies=(NAME,),
    agent=agent,
    patience=20,
    presets={"paper": PAPER_RECIPE},
)

PPO_SYSTEM = replace(
    SYSTEM,
    name=PPO_NAME,
    summary="the same tasks as DL2, by PPO with a value for each job; Headway",
    recipe=PPORecipe,
    presets={},
    policies=(PPO_NAME,),
    agent=partial(agent, system=PPO_NAME),
)
