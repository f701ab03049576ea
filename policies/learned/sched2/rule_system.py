"""The search for a rule as a system of `headway-policy train`."""

from __future__ import annotations

import numpy as np

from policies.learned.sched2.rule import SYSTEM as NAMED
from policies.learned.sched2.rule import WEIGHT, RuleAgent, Sched2Rule
from policies.learned.sched2.training.rule_recipe import RuleRecipe
from policies.learned.sched2.training.rule_search import RuleSearch
from policies.learned.sched2.training.training_setup import card_details, encoding_for, envs_for, figure_of, paper_setup
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SimulationBackend, TrainableSystem


def train(run: TrainingRun, backend: SimulationBackend, recipe: RuleRecipe) -> None:
    """Search, and validate the rule that was found."""
    encoding = encoding_for(recipe, backend)
    envs = envs_for(recipe, backend)
    search = RuleSearch(envs, encoding.columns, recipe, run.card.seed)
    run.keep(search=search.search)
    for number in run.rounds(recipe.rounds):
        run.log(**search.run())
        if number + 1 == recipe.rounds:
            rule = search.search.mean
            figures = backend.validate(Sched2Rule(RuleAgent(encoding, rule)))
            run.evaluate(figure_of(recipe, figures), {WEIGHT: rule.astype(np.float32)}, **figures)


SYSTEM = TrainableSystem(
    name=NAMED,
    summary="a rule in place of SCHED2's network, found by a search over whole episodes",
    recipe=RuleRecipe,
    setup=paper_setup,
    card=card_details,
    train=train,
    policies=("sched2-rule",),
)
