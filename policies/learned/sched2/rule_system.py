"""The search for a rule as a system of `headway-policy train`."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from policies.learned.sched2.encoder import NAME
from policies.learned.sched2.rule import SYSTEM as NAMED
from policies.learned.sched2.rule import WEIGHT, RuleAgent, Sched2Rule
from policies.learned.sched2.state.kinds import EFFECTIVENESS
from policies.learned.sched2.training.rule_recipe import RuleRecipe
from policies.learned.sched2.training.rule_search import RuleSearch
from policies.learned.sched2.training.training_setup import ENVIRONMENT, encoding_for, paper_setup
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import FIGURE, CardDetails, SimulationBackend, TrainableSystem
from policies.learned.weights.card import settings_of


def card_details(recipe: RuleRecipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries."""
    encoding = encoding_for(recipe, backend)
    kept = {**settings_of(recipe), **settings_of(asdict(encoding))}
    return CardDetails(encoder=NAME, shapes=(encoding.supports,), settings=kept)


def train(run: TrainingRun, backend: SimulationBackend, recipe: RuleRecipe) -> None:
    """Search, and validate the rule that was found."""
    encoding = encoding_for(recipe, backend)
    envs = backend.envs(
        ENVIRONMENT,
        recipe.envs,
        candidates=recipe.candidates,
        window=recipe.window,
        reward=recipe.reward,
        tell_time=True,
    )
    search = RuleSearch(envs, encoding.columns, recipe, run.card.seed)
    run.keep(search=search.search)
    for number in run.rounds(recipe.rounds):
        run.log(**search.run())
        if number + 1 == recipe.rounds:
            rule = search.search.mean
            figures = backend.validate(Sched2Rule(RuleAgent(encoding, rule)))
            figure = -figures["effectiveness"] if recipe.reward == EFFECTIVENESS else figures[FIGURE]
            run.evaluate(figure, {WEIGHT: rule.astype(np.float32)}, **figures)


SYSTEM = TrainableSystem(
    name=NAMED,
    summary="a rule in place of SCHED2's network, found by a search over whole episodes",
    recipe=RuleRecipe,
    setup=paper_setup,
    card=card_details,
    train=train,
    policies=("sched2-rule",),
)
