"""SCHED2's Q-network as a system of `headway-policy train`."""

from __future__ import annotations

from policies.learned.sched2.encoder import NAME
from policies.learned.sched2.encoder import encoding_of as encoding_in
from policies.learned.sched2.policy import SYSTEM as NAMED
from policies.learned.sched2.policy import QAgent, Sched2
from policies.learned.sched2.training.q_learning import QLearning
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.training_setup import (
    ENVIRONMENT,
    OPTIONS,
    card_details,
    encoding_for,
    envs_for,
    figure_of,
    paper_setup,
)
from policies.learned.training.agents import AgentInEnvironment, NetworkAgent
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SimulationBackend, TrainableSystem
from policies.learned.weights import weights


def agent(folder: str) -> AgentInEnvironment:
    """Return the trained agent in the environment of its training. Raises WeightsError."""
    place, name = weights.located(folder, NAMED, NAMED)
    _, card = weights.load(place, name, system=NAMED, encoder=NAME)
    loaded = QAgent.load(folder, "")
    options = {each: card.recipe[each] for each in (*OPTIONS, "reward") if each in card.recipe}
    if float(card.recipe.get("horizon_h") or 0.0) > 0:
        options["horizon_h"] = card.recipe["horizon_h"]
    shape = (encoding_in(card.recipe).columns.size,)
    return AgentInEnvironment(NetworkAgent(loaded.q_values, shape), ENVIRONMENT, options, needs=OPTIONS)


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Learn; validate the network every so many rounds, and after the last.

    Patience begins when exploration has fallen to its end: until then the agent learns from data that get better by themselves.
    """
    encoding = encoding_for(recipe, backend)
    horizon = {"horizon_h": recipe.horizon_h} if recipe.horizon_h > 0 else {}
    envs = envs_for(recipe, backend, **horizon)
    learning = QLearning(envs, encoding.columns, recipe, run.card.seed)
    policy = Sched2(QAgent(encoding, learning.network))
    run.keep(training=learning)
    for number in run.rounds(recipe.rounds):
        run.log(**learning.run_round())
        if (number + 1) % recipe.validate_every == 0 or number + 1 == recipe.rounds:
            figures = backend.validate(policy)
            run.early.counting = not recipe.explores_in(number)
            run.evaluate(
                figure_of(recipe, figures),
                learning.network.state_dict(),
                min_gain=recipe.min_gain,
                **figures,
            )


SYSTEM = TrainableSystem(
    name=NAMED,
    summary="which of ten waiting jobs starts next, so that clusters do not fragment; SCHED2 (Luan et al., GLOBECOM 2019)",
    recipe=Recipe,
    setup=paper_setup,
    card=card_details,
    train=train,
    policies=("sched2",),
    agent=agent,
    patience=5,
)
