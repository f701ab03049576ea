"""The traffic of a job that reduces over a ring, and the time of a reduction without other jobs.

Assumption: data-parallel training reduces the gradients of every step over one ring that visits the job's nodes rack by rack. With
`bytes` of gradients and m nodes, 2 (m-1)/m x `bytes` pass each node's NIC in each direction, and each rack's uplink if there are
several racks, at the speed of the narrowest link. A reduction inside a node takes no time beyond computing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from policies.state.ring_reduction import RingSpeed
from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.profiles.model_profiles import ModelProfile

GB = 1e9


def sent_bytes(profile: ModelProfile, nodes: int) -> float:
    """Return the bytes that pass each node of a ring in one step, in each direction."""
    return 2 * (nodes - 1) / nodes * profile.bytes


def ring_gbs(capacity: Sequence[float], passes: Mapping[int, float]) -> float:
    """Return the GB/s of a ring without other jobs on its links."""
    return min(capacity[link] / times for link, times in passes.items())


def ring_speed(topology: Topology, nodes: Sequence[int]) -> RingSpeed:
    """Return the GB/s of a ring of these nodes without other jobs, by NICs and by links between switches; infinite on one node."""
    if len(nodes) < 2:
        return RingSpeed()
    nic = uplink = inf
    for link, times in topology.ring(nodes).items():
        if link in topology.nics:
            nic = min(nic, topology.capacity[link] / times)
        else:
            uplink = min(uplink, topology.capacity[link] / times)
    return RingSpeed(nic, uplink)


class BestRing:
    """The best placement of a number of GPUs: on the fewest nodes of the largest racks. Copies of a model share it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        sizes = Counter(topology.racks)
        self._order = sorted(
            range(topology.num_nodes), key=lambda node: (-sizes[topology.racks[node]], topology.racks[node])
        )
        self._speeds: dict[int, RingSpeed] = {}
        self.largest_rack = max(sizes.values())
        self.largest_group = max(
            topology.group_size(node) for node in range(topology.num_nodes) if topology.gpus[node] == topology.max_gpus
        )

    def nodes(self, gpus: int) -> int:
        """Return the minimum number of nodes for so many GPUs."""
        return -(-gpus // self._topology.max_gpus)

    def seconds(self, profile: ModelProfile, gpus: int) -> float:
        """Return the seconds of one step's reduction over so many GPUs at best, without other jobs."""
        sent, speed = self.sent_bytes(profile, gpus)
        return sent / (speed.narrowest * GB)

    def sent_bytes(self, profile: ModelProfile, gpus: int) -> tuple[float, RingSpeed]:
        """Return the bytes that each node sends for this reduction, and the speed of the ring: 0 and infinite on one node."""
        nodes = min(self.nodes(gpus), self._topology.num_nodes)
        if nodes < 2:
            return 0.0, RingSpeed()
        speed = self._speeds.get(nodes)
        if speed is None:
            speed = self._speeds[nodes] = ring_speed(self._topology, self._order[:nodes])
        return sent_bytes(profile, nodes), speed


def alone_s(topology: Topology, profile: ModelProfile, resident: Resident) -> float:
    """Return the seconds of one step's reduction as the job is placed, without other jobs."""
    if len(resident.nodes) < 2:
        return 0.0
    return sent_bytes(profile, len(resident.nodes)) / (ring_gbs(topology.capacity, topology.ring(resident.nodes)) * GB)
