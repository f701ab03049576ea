"""Edges of MARL's graphs under construction, and the loads of those that consist of links.

Bandwidths b in GB/s are shown as b / (b + 10), loads in pairs of tasks per GB/s as p / (p + 1), tiers as shares of 5. The paper
does not give these forms; environment and policy use the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from policies.learned.marl.graphs import Graph, Ints

Amounts = npt.NDArray[np.float64]
PCIE, CPUS, NETWORK = 0, 1, 2
"""Tiers: between a GPU group and its CPU, between the CPUs of a server, and the lowest level of the network."""
_GBS = 10.0
_TIERS = 5.0


@dataclass
class Edges:
    """Edges in the order in which they were added. Bound: lives while one graph is made."""

    ends: list[tuple[int, int]] = field(default_factory=list)
    gbs: list[float] = field(default_factory=list)
    tiers: list[int] = field(default_factory=list)
    links: list[list[int]] = field(default_factory=list)
    """Links of the network that an edge consists of."""

    def add(self, ends: tuple[int, int], gbs: float, tier: int, links: list[int]) -> None:
        """Add an edge between two nodes."""
        self.ends.append(ends)
        self.gbs.append(gbs)
        self.tiers.append(tier)
        self.links.append(links)

    def graph(self, nodes: int) -> Graph:
        """Return the graph of these edges and so many nodes."""
        gbs, tiers = np.array(self.gbs), np.array(self.tiers)
        fixed = np.stack([gbs / (gbs + _GBS), np.minimum(tiers / _TIERS, 1.0)], axis=1).astype(np.float32)
        return Graph(nodes, np.array(self.ends, dtype=np.int64).reshape(-1, 2), fixed)

    def nodes(self, least: int) -> int:
        """Return the number of nodes: one more than the highest, and at least `least`."""
        return max((max(ends) for ends in self.ends), default=least - 1) + 1


@dataclass(frozen=True, eq=False)
class Loads:
    """The links of each edge, by which its load is found."""

    edge: Ints
    """Edge of each of `links`."""
    links: Ints
    gbs: Amounts
    """GB/s of each edge."""

    @staticmethod
    def of(edges: Edges) -> Loads:
        """Return those of these edges."""
        edge = [place for place, links in enumerate(edges.links) for _ in links]
        links = [link for each in edges.links for link in each]
        return Loads(np.array(edge, dtype=np.int64), np.array(links, dtype=np.int64), np.array(edges.gbs))

    def shown(self, pairs: Amounts) -> Amounts:
        """Return the load of each edge by the pairs on every link, between 0 and 1; 0 for edges without links."""
        load = np.bincount(self.edge, pairs[self.links], minlength=len(self.gbs)) / self.gbs
        found: Amounts = load / (load + 1.0)
        return found
