"""headway-rl as a system that `headway-policy train` knows."""

from __future__ import annotations

from policies.learned.headway_rl.features import ENCODER
from policies.learned.headway_rl.policy import SYSTEM as NAME
from policies.learned.headway_rl.recipe import Recipe, scene, train
from policies.learned.training.systems import Facts, Ground, System


def _facts(recipe: Recipe, ground: Ground) -> Facts:
    """All features are relative: it knows every cluster."""
    del recipe, ground
    return Facts(encoder=ENCODER, shapes=("any",))


SYSTEM = System(
    name=NAME,
    says="Headway: which jobs are worth most together, contention deducted; by the cross-entropy method",
    recipe=Recipe,
    scene=scene,
    facts=_facts,
    train=train,
    policies=(NAME,),
    rounds="generations",
)
