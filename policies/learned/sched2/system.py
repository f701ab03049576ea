"""SCHED2 as a system of `headway-policy train`."""

from __future__ import annotations

from policies.learned.sched2.encoder import NAME, Encoding
from policies.learned.sched2.policy import SYSTEM as NAMED
from policies.learned.sched2.policy import Sched2, Sched2Agent, settings
from policies.learned.sched2.training.recipe import EFFECTIVENESS, Recipe
from policies.learned.sched2.training.trainer import DqnTrainer
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

ENVIRONMENT = "headway/Sched2-v0"


def setup(recipe: Recipe) -> TrainingSetup:
    """Return 15 servers of 8 GPUs, and the paper's workload at the recipe's gaps."""
    return TrainingSetup(
        workloads=tuple(WorkloadSpec("sched2", {"mean_gap_s": gap_s}) for gap_s in recipe.gaps_s),
        cluster="15x8",
        papers=("sched2",),
        window=1000,
        validation_seeds=range(500, 530),
    )


def encoding_of(recipe: Recipe, backend: SimulationBackend) -> Encoding:
    """Return the encoding for that backend's cluster."""
    return Encoding(
        num_nodes=len(backend.gpus),
        gpus_per_node=max(backend.gpus),
        candidates=recipe.candidates,
        window=recipe.window,
    )


def card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries."""
    encoding = encoding_of(recipe, backend)
    return CardDetails(encoder=NAME, shapes=(encoding.supports,), settings=settings(encoding, recipe))


def agent(folder: str) -> AgentInEnvironment:
    """Return the trained agent in the environment of its training. Raises WeightsError."""
    place, name = weights.located(folder, NAMED, NAMED)
    _, card = weights.load(place, name, system=NAMED, encoder=NAME)
    needs = ("candidates", "window")
    options = {each: card.recipe[each] for each in (*needs, "reward", "horizon_h") if each in card.recipe}
    loaded = Sched2Agent.load(folder, "")
    shape = (loaded.encoder.encoding.layout.size,)
    return AgentInEnvironment(NetworkAgent(loaded.q_values, shape), ENVIRONMENT, options, needs=needs)


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Search, then learn; after the search and every round of Q-learning, validate the network.

    The best weights are those of the search, unless Q-learning is better by more than the recipe's `min_gain`.
    """
    encoding = encoding_of(recipe, backend)
    envs = backend.envs(
        ENVIRONMENT,
        recipe.envs,
        candidates=recipe.candidates,
        window=recipe.window,
        reward=recipe.reward,
        horizon_h=recipe.horizon_h,
        tell_time=True,
    )
    training = DqnTrainer(envs, encoding.layout, recipe, run.card.seed)
    policy = Sched2.of(Sched2Agent(encoding, training.network))
    run.keep(training=training)
    for number in run.rounds(recipe.searches, "search"):
        run.log(**training.run_search())
        if number == recipe.searches - 1:
            _evaluate(run, backend, policy, training)
    for _ in run.rounds(recipe.rounds):
        run.log(**training.run_round())
        _evaluate(run, backend, policy, training)


def _evaluate(run: TrainingRun, backend: SimulationBackend, policy: Sched2, training: DqnTrainer) -> None:
    figures = backend.validate(policy)
    effectiveness = training.recipe.reward == EFFECTIVENESS
    figure = -figures["effectiveness"] if effectiveness else figures[FIGURE]
    min_gain = training.recipe.min_gain if training.round and training.searched else 0.0
    run.evaluate(figure, training.network.state_dict(), min_gain=min_gain, **figures)


SYSTEM = TrainableSystem(
    name=NAMED,
    summary="which of ten waiting jobs starts next, so that clusters do not fragment; SCHED2 (Luan et al., GLOBECOM 2019)",
    recipe=Recipe,
    setup=setup,
    card=card_details,
    train=train,
    policies=("sched2",),
    agent=agent,
)
