"""What a job that reduces over a ring sends, and the time that it takes alone.

Assumption: data-parallel training reduces the gradients of every step over one ring that visits the job's nodes rack by
rack. Of `bytes` gradients, 2 (m-1)/m times as many pass the NIC of each of the m nodes in each direction, and the uplink of
every rack of a job in several racks as well; they pass at the pace of the narrowest link. Inside a node reduction takes no
time beyond that of computing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.profiles.profile import Profile

GB = 1e9


def sent_bytes(profile: Profile, nodes: int) -> float:
    """Bytes that pass through every node of a ring in one step, each direction."""
    return 2 * (nodes - 1) / nodes * profile.bytes


def ring_gbs(capacity: Sequence[float], passes: Mapping[int, float]) -> float:
    """GB/s at which a ring goes that has its links for itself."""
    return min(capacity[link] / times for link, times in passes.items())


class BestRing:
    """Where so many GPUs are best placed: on the fewest nodes of the largest racks. Only reads; copies of a model share it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        sizes = Counter(topology.racks)
        self._order = sorted(
            range(topology.num_nodes), key=lambda node: (-sizes[topology.racks[node]], topology.racks[node])
        )
        self._gbs: dict[int, float] = {}
        self.largest_rack = max(sizes.values())
        self.largest_group = max(
            topology.group_size(node) for node in range(topology.num_nodes) if topology.gpus[node] == topology.max_gpus
        )

    def nodes(self, gpus: int) -> int:
        """Nodes that so many GPUs need at least."""
        return -(-gpus // self._topology.max_gpus)

    def seconds(self, profile: Profile, gpus: int) -> float:
        """Seconds of one step's reduction over so many GPUs, with all links for itself."""
        nodes = min(self.nodes(gpus), self._topology.num_nodes)
        if nodes < 2:
            return 0.0
        gbs = self._gbs.get(nodes)
        if gbs is None:
            gbs = self._gbs[nodes] = ring_gbs(self._topology.capacity, self._topology.ring(self._order[:nodes]))
        return sent_bytes(profile, nodes) / (gbs * GB)


def alone_s(topology: Topology, profile: Profile, resident: Resident) -> float:
    """Seconds of one step's reduction as the job is placed, with all links for itself."""
    if len(resident.nodes) < 2:
        return 0.0
    return sent_bytes(profile, len(resident.nodes)) / (ring_gbs(topology.capacity, topology.ring(resident.nodes)) * GB)
