"""The data centers of MARL (section VI): a network of servers, their GPU groups, and the partition of each scheduler.

A GPU group is the GPUs below one CPU, with that CPU's cores. Groups are numbered server by server, servers as in the topology, so
the groups of a scheduler are consecutive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.cluster.cluster import Cluster
from simulator.cluster.topology import Inside, Topology, bcube, fat_tree, rack_tree, vl2
from simulator.cluster.topology.generators import VL2_SERVERS
from simulator.errors import SettingError
from simulator.papers.marl.options import BCUBE, DGX1, FAT_TREE, G4DN, MIXED, POWER8, RACKS, TWO_SIZES, MarlOptions
from simulator.slowdown.neighbours.interference import CORES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Server = tuple[tuple[int, float], ...]
"""GPUs and cores of each group of a server."""

SERVERS: dict[str, Server] = {
    POWER8: ((2, 8.0), (2, 8.0)),
    DGX1: ((4, 16.0), (4, 16.0)),
    TWO_SIZES: ((4, 16.0), (2, 8.0)),
    G4DN: ((4, 24.0),),
}
SMALL: Server = ((2, 8.0),)
"""The smallest servers of `mixed`."""
_SHARES = (0.2, 0.4)
"""Shares of the smallest and of the Power8 servers in `mixed`; the others are DGX-1."""
_PODS_OF_BCUBE = 2
"""BCube_1 of a scheduler (section VI-D)."""
_NIC_GBS, _PCIE_GBS = 6.25, 15.0
"""50 Gb/s, and the throughput of PCIe, of a server of the testbed (section VII)."""


@dataclass(frozen=True, eq=False)
class DataCenter:
    """Servers, groups and partitions. Invariant: all partitions have equally many servers and groups, all schedulers equally many
    partitions."""

    topology: Topology
    group_gpus: Ints
    """GPUs of each group (G)."""
    group_cores: Floats
    """Physical cores of each group's CPU (G)."""
    group_server: Ints
    """Server of each group (G)."""
    schedulers: int
    partitions: int
    """Parts of the network that have a scheduler each, unless the options give fewer schedulers."""
    other_cores: Floats = field(init=False, repr=False)
    """Physical cores of the other CPUs of each group's server (G)."""
    core_unit: Floats = field(init=False, repr=False)
    """Cores of the CPUs to which the coefficients of interference refer, for each core of the group's CPU (G)."""
    links_gbs: Floats = field(init=False, repr=False)
    """GB/s of each link between servers, in each direction (links)."""

    def __post_init__(self) -> None:
        of_server = np.bincount(self.group_server, self.group_cores)
        object.__setattr__(self, "other_cores", of_server[self.group_server] - self.group_cores)
        object.__setattr__(self, "core_unit", CORES / self.group_cores)
        object.__setattr__(self, "links_gbs", np.array(self.topology.network))

    @property
    def num_groups(self) -> int:
        """Number of GPU groups, G."""
        return len(self.group_gpus)

    @property
    def groups_each(self) -> int:
        """Number of GPU groups of a scheduler, M."""
        return self.num_groups // self.schedulers

    @property
    def servers_each(self) -> int:
        """Number of servers of a scheduler."""
        return self.topology.num_nodes // self.schedulers

    def groups_of(self, scheduler: int) -> slice:
        """Return the groups of a scheduler."""
        each = self.groups_each
        return slice(scheduler * each, (scheduler + 1) * each)

    @property
    def cluster(self) -> Cluster:
        """The servers as a cluster, for what needs one."""
        nodes = range(self.topology.num_nodes)
        names = tuple(f"server-{node}" for node in nodes)
        return Cluster(names, self.topology.gpus, self.topology.sockets, (1.0,) * len(names), self.topology)

    def scheduler_of(self, groups: Ints) -> Ints:
        """Return the scheduler of each of these groups."""
        return groups // self.groups_each


def data_center(options: MarlOptions) -> DataCenter:
    """Make the data center of these options. Raises SettingError, and ClusterError for an impossible k."""
    each, pods = _sizes(options)
    partition = _servers(options.architecture, each)
    servers = partition * pods
    gpus = [sum(count for count, _ in server) for server in servers]
    sockets = [len(server) for server in servers]
    if options.network == FAT_TREE:
        topology = fat_tree(gpus, sockets, k=_k(options))
    elif options.network == BCUBE:
        topology = bcube(gpus, sockets, n=options.n, k=_k(options))
    elif options.network == RACKS:
        topology = _racks(gpus, sockets, each)
    else:
        topology = vl2(gpus, sockets, k=_k(options))
    groups = [(place, count, cores) for place, server in enumerate(servers) for count, cores in server]
    place, count, cores = (np.array(column) for column in zip(*groups, strict=True))
    return DataCenter(topology, count, cores.astype(np.float64), place, _schedulers(options, pods), pods)


def _racks(gpus: list[int], sockets: list[int], each: int) -> Topology:
    """Return racks of `each` servers, whose uplinks have the bandwidth of all their servers. Of the testbed's network the paper
    says nothing but the speed of the servers' own links."""
    racks = [server // each for server in range(len(gpus))]
    inside = Inside(pcie_gbs=_PCIE_GBS)
    return rack_tree(gpus, sockets, racks, nic_gbs=_NIC_GBS, uplink_gbs=each * _NIC_GBS, inside=inside)


def _schedulers(options: MarlOptions, partitions: int) -> int:
    """Return the number of schedulers. Raises SettingError if they cannot have equally many partitions."""
    count = 1 if options.single else options.schedulers or partitions
    if partitions % count:
        raise SettingError(
            f"schedulers is {count}, and the data center has {partitions} partitions; give a divisor of that number"
        )
    return count


def _k(options: MarlOptions) -> int:
    return options.k if options.k is not None else {BCUBE: 3, RACKS: 2}.get(options.network, 20)


def _sizes(options: MarlOptions) -> tuple[int, int]:
    """Return the servers of a scheduler, and the number of schedulers."""
    k = _k(options)
    if options.network == FAT_TREE:
        if k < 2 or k % 2:
            raise SettingError(f"k is {k}; a fat-tree needs an even number of ports")
        return (k // 2) ** 2, k
    if options.network == BCUBE:
        n = options.n
        if n < 2 or n % _PODS_OF_BCUBE or k < 2:
            raise SettingError(f"BCube has n={n} and k={k}; give an even n and k of at least 2")
        return _PODS_OF_BCUBE * n * n, n ** (k - 1) // _PODS_OF_BCUBE
    if options.network == RACKS:
        if min(options.n, k) < 1:
            raise SettingError(f"there are k={k} racks of n={options.n} servers; give at least 1 of each")
        return options.n, k
    if k < 4 or k % 4:
        raise SettingError(f"k is {k}; VL2 needs a multiple of 4")
    return k // 4 * VL2_SERVERS, k


def _servers(architecture: str, count: int) -> list[Server]:
    """Return the servers of one partition; those of `mixed` take turns, so that racks are alike."""
    if architecture != MIXED:
        return [SERVERS[architecture]] * count
    small, medium = (round(share * count) for share in _SHARES)
    kinds = [SMALL] * small + [SERVERS[POWER8]] * medium + [SERVERS[DGX1]] * (count - small - medium)
    order = sorted(range(count), key=lambda place: (place * 7 % count, place))
    return [kinds[place] for place in order]
