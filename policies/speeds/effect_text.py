"""The effect of a placement on a job and on others, as text for the reason of a decision. Pure functions."""

from __future__ import annotations

from policies.model import ClusterState, Placement
from policies.speeds.contention_model import ContentionModel, Effect


def nodes_text(state: ClusterState, placement: Placement) -> str:
    """Return the nodes of a placement: "node n3", or "4 nodes, n1 to n4"."""
    names, nodes = state.nodes.names, placement.nodes
    if len(nodes) == 1:
        return f"node {names[nodes[0]]}"
    return f"{len(nodes)} nodes, {names[nodes[0]]} to {names[nodes[-1]]}"


def effect_text(state: ClusterState, effect: Effect, taken: str = "") -> str:
    """Return the job's own speed and what others lose; `taken` says what the loss is a share of."""
    text = f"would run at {effect.own:.0%} of its ideal speed"
    if effect.loser >= 0:
        text += f" and take {effect.taken:.0%}{taken} from others, most from job {state.jobs.ids[effect.loser]}"
    return text


def usual_text(model: ContentionModel, row: int) -> str:
    """Return a note for a job whose model was not measured; empty for others."""
    return " (its model was not measured: the usual numbers count)" if model.is_usual(row) else ""
