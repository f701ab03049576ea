"""The graphs of a cluster's schedulers: those of `headway/Marl-v0`, for a network of nodes, rack switches and what connects racks.

The inner graph of a scheduler has its GPU groups, a CPU for each, and the switches of its racks; the inter graph has the
schedulers, and one node for all switches above the racks, with the uplinks of a scheduler's racks as its edge. A single scheduler
has these switches in its inner graph. Links are numbered by node, then by rack; speeds that are not known are those of
`policies.speeds.links`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.learned.marl.edges import CPUS, NETWORK, PCIE, Amounts, Edges, Loads
from policies.learned.marl.graphs import Layout
from policies.learned.marl.serving.schedulers import Ints, Schedulers
from policies.model import ClusterState
from policies.speeds.links import NetworkLinks

PCIE_GBS, SOCKET_GBS = 16.0, 37.5
"""Speeds inside nodes where they are not known: those of the training (section VI of the paper)."""
_ABOVE = -1
"""The switches above the racks, as one."""


@dataclass(frozen=True, eq=False)
class ClusterGraphs:
    """Graphs, and the links of their edges. Invariant: edge g < M of an inner graph is the PCIe of the scheduler's group g."""

    layouts: tuple[Layout, ...]
    """Sizes and graphs for each scheduler; equal graphs are the same object."""
    inner_loads: tuple[Loads, ...]
    inter_loads: Loads


def uplinks_of(state: ClusterState) -> Ints:
    """Return the number of the uplink of each node's rack."""
    return len(state.nodes) + np.unique(state.nodes.rack, return_inverse=True)[1].reshape(-1)


def graphs_of(state: ClusterState, schedulers: Schedulers) -> ClusterGraphs:
    """Return the graphs of a cluster."""
    gbs = np.array(NetworkLinks(state).capacity)
    uplinks = uplinks_of(state)
    every = [_inner(state, schedulers, scheduler, gbs, uplinks) for scheduler in range(schedulers.count)]
    inter = _inter(schedulers, gbs, uplinks)
    between = inter.graph(inter.nodes(schedulers.count))
    layouts: dict[object, Layout] = {}
    found = []
    for scheduler, edges in enumerate(every):
        groups = schedulers.groups_of(scheduler)
        count = groups.stop - groups.start
        key = (count, tuple(edges.ends), tuple(edges.gbs), tuple(edges.tiers))
        if key not in layouts:
            inner = edges.graph(edges.nodes(2 * count))
            layouts[key] = Layout(schedulers.count, count, 0, inner, between, by_type=True)
        found.append(layouts[key])
    return ClusterGraphs(tuple(found), tuple(map(Loads.of, every)), Loads.of(inter))


def _inner(state: ClusterState, schedulers: Schedulers, scheduler: int, gbs: Amounts, uplinks: Ints) -> Edges:
    nodes = schedulers.group_node[schedulers.groups_of(scheduler)].tolist()
    count, edges = len(nodes), Edges()
    pcie = pcie_of(state)
    for place, node in enumerate(nodes):
        edges.add((place, count + place), float(pcie[node]), PCIE, [])
    for place in range(1, count):
        if nodes[place] == nodes[place - 1]:
            edges.add((count + place - 1, count + place), SOCKET_GBS, CPUS, [])
    switches: dict[int, int] = {}
    for place, node in enumerate(nodes):
        uplink = int(uplinks[node])
        is_new = uplink not in switches
        switch = switches.setdefault(uplink, 2 * count + len(switches))
        edges.add((count + place, switch), float(gbs[node]), NETWORK, [node])
        if is_new and schedulers.count == 1:
            above = switches.setdefault(_ABOVE, 2 * count + len(switches))
            edges.add((switch, above), float(gbs[uplink]), NETWORK + 1, [uplink])
    return edges


def _inter(schedulers: Schedulers, gbs: Amounts, uplinks: Ints) -> Edges:
    edges = Edges()
    if schedulers.count > 1:
        for scheduler in range(schedulers.count):
            own = np.unique(uplinks[schedulers.of_node == scheduler]).tolist()
            edges.add((scheduler, schedulers.count), float(gbs[own].sum()), NETWORK + 1, own)
    return edges


def pcie_of(state: ClusterState) -> Amounts:
    """Return the GB/s between a GPU group and its CPU, for each node."""
    known = state.nodes.pcie_gbyte_s
    if known is None:
        return np.full(len(state.nodes), PCIE_GBS)
    return np.where(np.isnan(known) | (known <= 0), PCIE_GBS, known)
