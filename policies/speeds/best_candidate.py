"""The candidate placement of a job at which the cluster gains most speed."""

from __future__ import annotations

from policies.model import Placement
from policies.placement.best_fit import Capacity
from policies.placement.candidates import candidates
from policies.speeds.contention_model import ContentionModel, Effect

_PERFECT = 1.0 - 1e-9
"""A gain that no other placement can beat."""
_SAME = 1e-12
"""Gains that differ by less are equal, and the first of them counts."""


def best_candidate(capacity: Capacity, model: ContentionModel, row: int) -> tuple[Placement, Effect] | None:
    """Return the best of the job's candidate placements with its effect; None where the job does not fit."""
    found: tuple[Placement, Effect] | None = None
    for placement in candidates(capacity, row, model.crowd):
        effect = model.effect(row, placement)
        if found is None or effect.net > found[1].net + _SAME:
            found = placement, effect
            if effect.net >= _PERFECT:
                break
    return found
