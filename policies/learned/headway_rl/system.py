"""headway-rl as a system that `headway-policy train` knows."""

from __future__ import annotations

from policies.learned.headway_rl.features import ENCODER
from policies.learned.headway_rl.policy import SYSTEM as NAME
from policies.learned.headway_rl.recipe import Recipe, setup, train
from policies.learned.training.systems import CardDetails, SimulationBackend, TrainableSystem


def _card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """All features are relative: it knows every cluster."""
    del recipe, backend
    return CardDetails(encoder=ENCODER, shapes=("any",))


SYSTEM = TrainableSystem(
    name=NAME,
    summary="Headway: which jobs are worth most together, contention deducted; by the cross-entropy method",
    recipe=Recipe,
    setup=setup,
    card=_card_details,
    train=train,
    policies=(NAME,),
    rounds="generations",
)
