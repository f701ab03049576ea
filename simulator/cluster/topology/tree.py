"""Paths in a tree of switches. What is parallel in the real network (the cores of a fat-tree) is one link with all capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TreeRoutes:
    """Every node is below a chain of switches up to the root.

    Invariant: `above[node]` are the uplinks of its switches from the lowest up; nodes below one switch share the link. A node
    with several NICs has one for each GPU group, and splits a ring's traffic evenly among them.
    """

    nic_links: tuple[tuple[int, ...], ...]
    above: tuple[tuple[int, ...], ...]

    def nics(self, node: int) -> tuple[int, ...]:
        """Return the links by which a node is connected."""
        return self.nic_links[node]

    def path(self, source: int, target: int, source_group: int = 0, target_group: int = 0) -> tuple[int, ...]:
        """Return the links up to the first common switch, and down."""
        if source == target:
            return ()
        up, down = self.above[source], self.above[target]
        shared = set(up) & set(down)
        nics = self.nic_links
        first = nics[source][source_group % len(nics[source])]
        last = nics[target][target_group % len(nics[target])]
        rising = [link for link in up if link not in shared]
        falling = [link for link in reversed(down) if link not in shared]
        return (first, *rising, *falling, last)

    def ring(self, nodes: Sequence[int]) -> Mapping[int, float]:
        """Return 1 for the nodes' links and for the uplinks of switches that have some of the nodes below, but not all.

        A ring that visits nodes in the order of the tree passes these links once each way.
        """
        if len(nodes) < 2:
            return {}
        passes: dict[int, float] = {}
        for node in nodes:
            nics = self.nic_links[node]
            for link in nics:
                passes[link] = 1.0 / len(nics)
        below = Counter(link for node in nodes for link in self.above[node])
        for link, count in below.items():
            if count < len(nodes):
                passes[link] = 1.0
        return passes


@dataclass
class LinkList:
    """A list of links under construction."""

    gbs: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, name: str, gbs: float) -> int:
        """Add a link; return its number."""
        self.gbs.append(gbs)
        self.names.append(name)
        return len(self.gbs) - 1

    def add_nics(self, nodes: Iterable[int], gbs: float, count: int = 1) -> tuple[tuple[int, ...], ...]:
        """Add NICs for every node; return their numbers."""
        return tuple(
            tuple(self.add(f"node {node} NIC {nic}" if count > 1 else f"node {node} NIC", gbs) for nic in range(count))
            for node in nodes
        )
