"""The effect of a placement on a job and on others, as text for the reasons of decisions."""

from __future__ import annotations

from policies.model import ClusterState
from policies.speeds.contention_model import ContentionModel, Effect


def effect_text(state: ClusterState, effect: Effect, weighting: str = "") -> str:
    """Return the job's own speed and what others lose, in a clause; `weighting` says how their losses are weighted."""
    text = f"it would run at {effect.own:.0%} of its ideal speed"
    if effect.loser >= 0:
        text += (
            f" and slow others down by {effect.taken:.0%} in total{weighting}, most job {state.jobs.ids[effect.loser]}"
        )
    return text


def typical_text(model: ContentionModel, row: int) -> str:
    """Return a note for a job whose model was not measured; empty for others."""
    return " (model not measured: typical values)" if model.is_typical(row) else ""
