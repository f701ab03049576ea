"""Links and the paths over them, as the slowdown models see them.

Every link is full duplex: its capacity is that of each direction. A model that loads both directions alike, as a ring does,
needs one number for a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from policies.state.gpu_layout import MOST_GPUS, GpuLayout

PCIE_GBS = 16.0
"""PCIe 3.0 x16, 128 Gb/s (MARL, section VI)."""
SOCKET_GBS = 37.5
"""Between two sockets, 300 Gb/s (MARL, section VI)."""
NVLINK_GBS = 50.0
"""Between two GPUs that two links of NVLink 2.0 connect (NVIDIA V100: 25 GB/s each)."""


class Routes(Protocol):
    """The paths of bytes between nodes."""

    def path(self, source: int, target: int, source_group: int = 0, target_group: int = 0) -> tuple[int, ...]:
        """Return the links from one node to another, in order; empty if both are the same node."""

    def ring(self, nodes: Sequence[int]) -> Mapping[int, float]:
        """Return how often a byte that goes once around a ring of these nodes passes each link, in each direction."""

    def nics(self, node: int) -> tuple[int, ...]:
        """Return the links by which a node is connected."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Bandwidths inside a node, GB/s."""

    pcie_gbs: float = PCIE_GBS
    """Bandwidth between a socket and the group of GPUs below it."""
    socket_gbs: float = SOCKET_GBS
    """Bandwidth between two sockets."""
    bridge_gbs: float | None = None
    """Bandwidth between two PCIe switches of one socket; None: that of PCIe."""
    nvlink_gbs: float = NVLINK_GBS
    """Bandwidth between two GPUs of an NVLink group."""


@dataclass(frozen=True)
class Topology:
    """Nodes, their GPU groups, and the links between them. Immutable: all copies of a simulated cluster share it.

    Invariants: `gpus`, `sockets`, `racks` and `pods` have one entry per node; racks and pods are counted from 0 without gaps.
    Links of the network are numbered from 0 as in `capacity`; those inside nodes follow; `pcie` and
    `between_sockets` give their numbers. Capacities are GB/s in each direction.
    """

    kind: str
    gpus: tuple[int, ...]
    sockets: tuple[int, ...]
    racks: tuple[int, ...]
    pods: tuple[int, ...]
    network: tuple[float, ...]
    """Capacities of the links between nodes."""
    names: tuple[str, ...]
    """Names of the links between nodes."""
    routes: Routes
    inside: Inside = Inside()
    speed: tuple[float, ...] = ()
    """Relative speed of the GPUs of each node; empty if all are alike."""
    switches: tuple[int, ...] = ()
    """PCIe switches of each node, a multiple of its sockets; empty: one for each socket."""
    nvlink: tuple[int, ...] = ()
    """GPUs of each NVLink group of each node, 0 where there is none; empty: nowhere."""
    capacity: tuple[float, ...] = field(init=False, repr=False)
    """GB/s of every link, those inside nodes included."""
    max_gpus: int = field(init=False)
    """GPUs of the largest node."""
    _first_inside: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        first = [len(self.network)]
        for sockets in self.sockets:
            first.append(first[-1] + sockets + 1)
        object.__setattr__(self, "_first_inside", tuple(first))
        parts = [(*(self.inside.pcie_gbs,) * sockets, self.inside.socket_gbs) for sockets in self.sockets]
        object.__setattr__(self, "capacity", (*self.network, *(gbs for part in parts for gbs in part)))
        object.__setattr__(self, "max_gpus", max(self.gpus))

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.gpus)

    @property
    def num_racks(self) -> int:
        """Number of racks."""
        return max(self.racks) + 1

    def group_size(self, node: int) -> int:
        """Return the GPUs of each group of a node; the last group may have fewer."""
        return -(-self.gpus[node] // self.sockets[node])

    def group_of(self, node: int, gpu: int) -> int:
        """Return the group (socket) of a node's GPU, both counted from 0; the first groups are the full ones."""
        if not 0 <= gpu < self.gpus[node]:
            raise IndexError(f"node {node} has {self.gpus[node]} GPUs, and none is {gpu}")
        return gpu // self.group_size(node)

    def group_sizes(self, node: int) -> tuple[int, ...]:
        """Return the GPUs of each group of a node, none negative."""
        size, gpus = self.group_size(node), self.gpus[node]
        return tuple(max(0, min(size, gpus - size * group)) for group in range(self.sockets[node]))

    def gpu_layout(self, node: int) -> GpuLayout | None:
        """Return how the GPUs of a node are connected; None if it has too many for a layout. Groups have consecutive indices."""
        gpus, inside = self.gpus[node], self.inside
        if gpus > MOST_GPUS:
            return None
        size, linked = self.group_size(node), self.nvlink[node] if self.nvlink else 0
        by_socket = self.switches[node] // self.sockets[node] if self.switches else 1
        below = -(-size // by_socket)
        bridge_gbs = min(inside.pcie_gbs, inside.bridge_gbs or inside.pcie_gbs)
        return GpuLayout(
            socket=tuple([gpu // size for gpu in range(gpus)]),
            switch=tuple([gpu // size * by_socket + gpu % size // below for gpu in range(gpus)]),
            nvlink=tuple([gpu // linked + 1 if linked else 0 for gpu in range(gpus)]),
            nvlink_gbyte_s=inside.nvlink_gbs if linked else None,
            switch_gbyte_s=inside.pcie_gbs,
            socket_gbyte_s=bridge_gbs,
            between_sockets_gbyte_s=min(bridge_gbs, inside.socket_gbs),
        )

    def pcie(self, node: int, group: int) -> int:
        """Return the link between a GPU group and its socket."""
        return self._first_inside[node] + group

    def between_sockets(self, node: int) -> int:
        """Return the link between the sockets of a node."""
        return self._first_inside[node] + self.sockets[node]

    @cached_property
    def nics(self) -> frozenset[int]:
        """The links by which nodes are connected; the other links of the network are between switches."""
        return frozenset(link for node in range(self.num_nodes) for link in self.routes.nics(node))

    def nic(self, node: int, group: int = 0) -> int:
        """Return the link by which a GPU group leaves its node: that of its socket if there are several, else the only one."""
        nics = self.routes.nics(node)
        return nics[group % len(nics)]

    def path(self, source: int, target: int, source_group: int = 0, target_group: int = 0) -> tuple[int, ...]:
        """Return the links from one node to another, in order; empty if both are the same node."""
        return self.routes.path(source, target, source_group, target_group)

    def ring(self, nodes: Sequence[int]) -> Mapping[int, float]:
        """Return how often a byte that goes once around a ring of these nodes passes each link, in each direction.

        The ring visits nodes by rack, so that it enters and leaves every rack once: a node's link, and the uplinks of the racks
        of a job in several racks, are passed once each way.
        """
        return self.routes.ring(nodes)

    def link_name(self, link: int) -> str:
        """Return the name of a link."""
        if link < len(self.names):
            return self.names[link]
        node = next(node for node in range(self.num_nodes) if link < self._first_inside[node + 1])
        group = link - self._first_inside[node]
        return f"node {node} sockets" if group == self.sockets[node] else f"node {node} PCIe {group}"
