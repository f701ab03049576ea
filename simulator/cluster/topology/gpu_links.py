"""Which links a set of GPUs uses: every GPU by itself, where `Topology` counts the GPUs of a node.

GPUs are numbered node by node, and on a node socket by socket. A link has two sides, `near` and `far`; it is on the path between
two GPUs if one of them is on each side, and a set of GPUs uses it if it has GPUs on both:

    between sockets    near: GPUs of one socket        far: GPUs of the other
    NIC of a socket    near: GPUs of the socket        far: GPUs of other nodes
    uplink of a rack   near: GPUs of the rack          far: GPUs of other racks

The link of a GPU to its socket (NVLink or PCIe) is used by one job at most, so it is no row of its own: `private_gbs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from simulator.cluster.topology.topology import Topology
from simulator.cluster.topology.tree import TreeRoutes
from simulator.errors import ClusterError

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GpuLinks:
    """GPUs, and the links that several jobs can share. Invariant: no GPU is on both sides of a link."""

    node: Ints
    """Node of each GPU."""
    socket: Ints
    """Socket of each GPU, counted over all nodes."""
    rack: Ints
    """Rack of each GPU."""
    names: tuple[str, ...]
    gbs: npt.NDArray[np.float64]
    """GB/s of each link, in each direction."""
    near: Flags
    """(links, GPUs)"""
    far: Flags
    """(links, GPUs)"""
    private_gbs: float
    """GB/s between a GPU and its socket."""
    distance: Ints = field(init=False, repr=False)
    """Number of links on the path between two GPUs, their own included (GPUs, GPUs); 0 on the diagonal."""

    def __post_init__(self) -> None:
        near, far = self.near.astype(np.int64), self.far.astype(np.int64)
        shared = near.T @ far
        own = 2 * (1 - np.eye(self.num_gpus, dtype=np.int64))
        object.__setattr__(self, "distance", own + shared + shared.T)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.node)

    @property
    def num_racks(self) -> int:
        """Number of racks."""
        return int(self.rack.max()) + 1

    def used(self, gpus: Flags) -> Flags:
        """Return which shared links a set of GPUs uses: (..., GPUs) -> (..., links)."""
        return (gpus @ self.near.T) & (gpus @ self.far.T)

    def spread(self, gpus: Flags) -> int:
        """Return the sum of the distances between all pairs of a set of GPUs: how far apart they are."""
        return int(self.distance[np.ix_(gpus, gpus)].sum()) // 2


def gpu_links(topology: Topology) -> GpuLinks:
    """Return the links between the GPUs of a tree. Raises ClusterError for a network that is no tree."""
    routes = topology.routes
    if not isinstance(routes, TreeRoutes):
        raise ClusterError(
            f"{topology.kind} is no tree, so its paths do not follow from the GPUs alone",
            mend="take flat, racks, switches, fat-tree or vl2",
            key="network.kind",
        )
    sizes = [topology.group_sizes(node) for node in range(topology.num_nodes)]
    node = np.repeat(np.arange(len(sizes)), [sum(each) for each in sizes])
    group = np.concatenate([np.repeat(np.arange(len(each)), each) for each in sizes])
    first = np.cumsum([0, *(len(each) for each in sizes[:-1])])
    sides = _Sides()
    for number, groups in enumerate(sizes):
        here = node == number
        for one, other in combinations(range(len(groups)), 2):
            name = topology.link_name(topology.between_sockets(number))
            sides.add(name, topology.inside.socket_gbs, here & (group == one), here & (group == other))
        nics = routes.nics(number)
        for place, link in enumerate(nics):
            sides.add(topology.link_name(link), topology.capacity[link], here & (group % len(nics) == place), ~here)
    above = [set(routes.above[number]) for number in range(len(sizes))]
    for link in sorted(set().union(*above)):
        below = np.array([link in each for each in above])[node]
        sides.add(topology.link_name(link), topology.capacity[link], below, ~below)
    return GpuLinks(
        node,
        first[node] + group,
        np.array(topology.racks)[node],
        tuple(sides.names),
        np.array(sides.gbs),
        np.array(sides.near, dtype=np.bool_).reshape(-1, len(node)),
        np.array(sides.far, dtype=np.bool_).reshape(-1, len(node)),
        topology.inside.pcie_gbs,
    )


@dataclass
class _Sides:
    """Links under construction; those that no two GPUs need are left out."""

    names: list[str] = field(default_factory=list)
    gbs: list[float] = field(default_factory=list)
    near: list[Flags] = field(default_factory=list)
    far: list[Flags] = field(default_factory=list)

    def add(self, name: str, gbs: float, near: Flags, far: Flags) -> None:
        """Add a link."""
        if near.any() and far.any():
            self.names.append(name)
            self.gbs.append(gbs)
            self.near.append(near)
            self.far.append(far)
