"""headway-rl as a system of `headway-policy train`."""

from __future__ import annotations

from policies.learned.headway_rl.features import ENCODER
from policies.learned.headway_rl.policy import SYSTEM as NAME
from policies.learned.headway_rl.recipe import Recipe, default_backends, setup, train
from policies.learned.headway_rl.setups import WIDE
from policies.learned.training.systems import CardDetails, SimulationBackend, TrainableSystem
from policies.learned.weights.trained_range import merged


def _card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries: all features are relative, so every cluster is supported."""
    first, *others = default_backends(recipe)
    used = [backend, *(others if backend.data_sha256 == first.data_sha256 else ())]
    trained_range = merged(each.trained_range() for each in used)
    return CardDetails(encoder=ENCODER, shapes=("any",), trained_range=trained_range)


SYSTEM = TrainableSystem(
    name=NAME,
    summary="Headway: the jobs with the highest total value, less the slowdowns by contention; cross-entropy method",
    recipe=Recipe,
    setup=setup,
    card=_card_details,
    train=train,
    policies=(NAME,),
    rounds="generations",
    presets={WIDE: Recipe(setups=WIDE, candidates=12, generations=12, episodes=16)},
)
