"""Placement of a job, given the GPUs of other jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.reference.model import Active, Nodes

PLACEMENTS = ("consolidated", "any")


@dataclass(frozen=True)
class Cluster:
    """Equal nodes, and the placement rule. The GPUs in use are an argument of each method."""

    nodes: int
    gpus_per_node: int
    placement: str

    def free(self, held: Iterable[Nodes]) -> list[int]:
        """Return the free GPUs by node if exactly these are in use."""
        free = [self.gpus_per_node] * self.nodes
        for nodes in held:
            for node, gpus in nodes.items():
                free[node] -= gpus
        assert min(free) >= 0, f"a GPU is held twice: {free}"
        return free

    def place(self, gpus: int, held: Iterable[Nodes]) -> Nodes | None:
        """Return the nodes for a job of that many GPUs beside those in use; None if it does not fit."""
        free = self.free(held)
        nodes = consolidated(gpus, free, self.gpus_per_node)
        if nodes is None and self.placement == "any":
            nodes = freest_first(gpus, free)
        return nodes

    def lay_out(self, selection: Sequence[Active]) -> dict[int, Nodes] | None:
        """Return the nodes of these jobs (by index) if no others are on the cluster; None if one does not fit.

        Running ones stay where they are; then the others are placed one after the other, in the order given.
        """
        layout = {active.index: active.nodes for active in selection if active.runs}
        for active in selection:
            if not active.runs:
                nodes = self.place(active.job.gpus, layout.values())
                if nodes is None:
                    return None
                layout[active.index] = nodes
        return layout


def consolidated(gpus: int, free: list[int], gpus_per_node: int) -> Nodes | None:
    """Place the job on as many empty nodes as it fills, lowest indices first, and the rest on the node of best fit.

    A job of at most one node is not a special case: it is all rest, or exactly one whole node, whose best fit is the
    empty node with the lowest index.
    """
    whole, remainder = divmod(gpus, gpus_per_node)
    empty = [node for node in range(len(free)) if free[node] == gpus_per_node]
    if len(empty) < whole:
        return None
    nodes = dict.fromkeys(empty[:whole], gpus_per_node)
    if remainder:
        fitting = [node for node in range(len(free)) if free[node] >= remainder and node not in nodes]
        if not fitting:
            return None
        nodes[min(fitting, key=lambda node: (free[node], node))] = remainder
    return nodes


def freest_first(gpus: int, free: list[int]) -> Nodes | None:
    """Take all free GPUs of the freest node, then of the next, until the job has enough; lowest index on ties."""
    if sum(free) < gpus:
        return None
    nodes: Nodes = {}
    for node in sorted(range(len(free)), key=lambda node: (-free[node], node)):
        share = min(free[node], gpus - sum(nodes.values()))
        if share:
            nodes[node] = share
    return nodes
