"""headway-rl as a system of `headway-policy train`."""

from __future__ import annotations

from policies.learned.headway_rl.features import ENCODER
from policies.learned.headway_rl.policy import SYSTEM as NAME
from policies.learned.headway_rl.recipe import Recipe, setup, train
from policies.learned.training.systems import CardDetails, SimulationBackend, TrainableSystem


def _card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries: all features are relative, so every cluster is supported."""
    del recipe, backend
    return CardDetails(encoder=ENCODER, shapes=("any",))


SYSTEM = TrainableSystem(
    name=NAME,
    summary="Headway: the jobs with the highest total value, less the slowdowns by contention; cross-entropy method",
    recipe=Recipe,
    setup=setup,
    card=_card_details,
    train=train,
    policies=(NAME,),
    rounds="generations",
)
