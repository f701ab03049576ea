"""The graphs of a data center, and the loads of their edges.

A server's switch is connected with each of its CPUs by the server's network link. Tiers from 0: PCIe, between CPUs, and the
levels of the network. Parallel switches are fused as in the topology (section VI-A): those above a tree's partitions are one, and
those of one level of BCube that are above partitions are one. The load of PCIe is the sum of the workers' shares, at most 1, and
that between CPUs is not known: 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.learned.marl.edges import CPUS, NETWORK, PCIE, Edges, Loads
from policies.learned.marl.graphs import Graph
from simulator.cluster.topology import BCubeRoutes, TreeRoutes
from simulator.papers.marl.state.data_center import DataCenter

_INNER_LEVELS_OF_BCUBE = 2


@dataclass(frozen=True, eq=False)
class DataCenterGraphs:
    """The graphs of a data center. Invariant: edge g < M of an inner graph is the PCIe of the partition's group g."""

    inner: Graph
    inner_loads: tuple[Loads, ...]
    """Loads of each scheduler's inner graph."""
    inter: Graph
    inter_loads: Loads


def graphs_of(center: DataCenter) -> DataCenterGraphs:
    """Return the graphs."""
    edges = [_inner(center, scheduler) for scheduler in range(center.schedulers)]
    inter = _inter(center)
    return DataCenterGraphs(
        edges[0].graph(edges[0].nodes(1)),
        tuple(map(Loads.of, edges)),
        inter.graph(inter.nodes(center.schedulers)),
        Loads.of(inter),
    )


def chains(center: DataCenter) -> list[list[list[tuple[object, int]]]]:
    """Return for each server its ways up: a way is a list of (switch, link to it), from the lowest switch up."""
    routes, count = center.topology.routes, center.topology.num_nodes
    if isinstance(routes, BCubeRoutes):
        found: list[list[list[tuple[object, int]]]] = []
        for server in range(count):
            ways: list[list[tuple[object, int]]] = []
            for level in range(routes.levels):
                unit = routes.n**level
                switch = (level, server // (unit * routes.n), server % unit)
                ways.append([(switch, server * routes.levels + level)])
            found.append(ways)
        return found
    assert isinstance(routes, TreeRoutes)
    return [[_way(routes, server)] for server in range(count)]


def _way(routes: TreeRoutes, server: int) -> list[tuple[object, int]]:
    links = [routes.nics(server)[0], *routes.above[server]]
    # A switch is known by the link above it; the highest has none.
    return [(above, link) for link, above in zip(links, [*links[1:], -1], strict=True)]


def _is_inner(center: DataCenter, level: int, levels: int) -> bool:
    """Return whether the switches of a level are in the inner graph."""
    if center.schedulers == 1:
        return True
    if isinstance(center.topology.routes, BCubeRoutes):
        return level < _INNER_LEVELS_OF_BCUBE
    return level < levels - 1


def _inner(center: DataCenter, scheduler: int) -> Edges:
    groups, inside = center.groups_of(scheduler), center.topology.inside
    count = center.groups_each
    edges = Edges()
    for place in range(count):
        edges.add((place, count + place), inside.pcie_gbs, PCIE, [])
    servers = center.group_server[groups]
    for place in range(1, count):
        if servers[place] == servers[place - 1]:
            edges.add((count + place - 1, count + place), inside.socket_gbs, CPUS, [])
    numbers: dict[object, int] = {}
    known: set[tuple[object, object]] = set()
    every = chains(center)
    for place, server in enumerate(servers.tolist()):
        for way_number, way in enumerate(every[server]):
            below: int | None = None
            for level, (switch, link) in enumerate(way):
                level_of_all = way_number + level
                if not _is_inner(center, level_of_all, len(way)):
                    break
                node = numbers.setdefault(switch, 2 * count + len(numbers))
                start = count + place if below is None else below
                if (start, node) not in known:
                    known.add((start, node))
                    edges.add((start, node), center.topology.network[link], NETWORK + level_of_all, [link])
                below = node
    return edges


def _inter(center: DataCenter) -> Edges:
    """Return the edges between schedulers and the fused switches above them; an edge has all links between the two."""
    edges, every = Edges(), chains(center)
    numbers: dict[int, int] = {}
    for scheduler in range(center.schedulers):
        servers = np.unique(center.group_server[center.groups_of(scheduler)]).tolist()
        links: dict[int, set[int]] = {}
        for server in servers:
            for way_number, way in enumerate(every[server]):
                for level, (_, link) in enumerate(way, start=way_number):
                    if not _is_inner(center, level, len(way)):
                        links.setdefault(level, set()).add(link)
        for level, its in sorted(links.items()):
            node = numbers.setdefault(level, center.schedulers + len(numbers))
            gbs = sum(center.topology.network[link] for link in its)
            edges.add((scheduler, node), gbs, NETWORK + level, sorted(its))
    return edges
