"""Placements as text, for the reasons of decisions."""

from __future__ import annotations

from policies.model import ClusterState, Placement


def nodes_text(state: ClusterState, placement: Placement) -> str:
    """Return the nodes of a placement: "node n3", or "4 nodes, n1 to n4"."""
    names, nodes = state.nodes.names, placement.nodes
    if len(nodes) == 1:
        return f"node {names[nodes[0]]}"
    return f"{len(nodes)} nodes, {names[nodes[0]]} to {names[nodes[-1]]}"
