"""Names of recipe fields that have changed, so that cards, checkpoints and command lines from before still work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")

RENAMED: Mapping[str, Mapping[str, str]] = {
    "contention-rl": {
        "lam": "gae_lambda",
        "clip": "clip_range",
        "entropy": "entropy_weight",
        "value": "value_weight",
        "max_gradient": "max_grad_norm",
    },
    "headway-rl": {"at_once": "candidates_per_round", "p90": "p90_weight"},
}
"""For each system the new name of each old one."""
_ENGINES = ("-sb3",)


def current_names(system: str, recipe: Mapping[str, Value]) -> dict[str, Value]:
    """Return the recipe with the present names of its fields. `system` is the name in a card, which may end with an engine's."""
    for engine in _ENGINES:
        system = system.removesuffix(engine)
    renamed = RENAMED.get(system, {})
    return {renamed.get(name, name): value for name, value in recipe.items()}
