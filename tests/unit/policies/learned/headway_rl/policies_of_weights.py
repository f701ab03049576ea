"""Small clusters for headway-rl: jobs with estimates and profiles, and networks with a say in one thing only."""

from __future__ import annotations

from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.network import TERMS, ValueFunction, empty
from policies.learned.headway_rl.policy import HeadwayRl
from policies.learned.headway_rl.recipe import START


def network(**weights: float) -> ValueFunction:
    """With these weights, and 0 for all others."""
    made = empty()
    for name, weight in weights.items():
        row, names = ("linear", NAMES) if name in NAMES else ("terms", TERMS)
        made[row][names.index(name)] = weight
    return ValueFunction(made)


def beginner(**options: bool) -> HeadwayRl:
    """With the weights that training begins with."""
    return HeadwayRl.of(network(**{name: mean for name, (mean, _) in START.items()}), **options)
