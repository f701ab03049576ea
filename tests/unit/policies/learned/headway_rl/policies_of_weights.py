"""Small clusters for headway-rl: jobs with estimates and profiles, and networks in which only some weights are not 0."""

from __future__ import annotations

from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.initial_rule import START
from policies.learned.headway_rl.network import TERMS, ValueFunction, empty
from policies.learned.headway_rl.policy import HeadwayRl


def network(**weights: float) -> ValueFunction:
    """Return the policy with these weights; all others are 0."""
    made = empty()
    for name, weight in weights.items():
        row, names = ("linear", NAMES) if name in NAMES else ("terms", TERMS)
        made[row][names.index(name)] = weight
    return ValueFunction(made)


def beginner(*, preempt: bool = True, tail: float = 0.0) -> HeadwayRl:
    """Return the policy with the weights from which training begins."""
    return HeadwayRl(network(**{name: mean for name, (mean, _) in START.items()}), preempt=preempt, tail=tail)
