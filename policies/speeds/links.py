"""The links between nodes as policies see them: a NIC for each node, and one uplink for each rack.

The speed of a NIC that is not known is the median of those that are, else RL-TAPS' 12.5 GB/s. An uplink of unknown speed is no
bottleneck: as fast as all NICs below it.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from policies.model import ClusterState
from policies.speeds.job_profiles import StepModel, filled_of
from policies.state.ring_reduction import RingSpeed, RingTime

GB = 1e9
TYPICAL_NIC_GBYTE_S = 12.5
"""RL-TAPS, table 1: InfiniBand EDR."""


class NetworkLinks:
    """Links by number: NICs by node, then uplinks by rack. Capacities are GB/s, and known for all links."""

    def __init__(self, state: ClusterState) -> None:
        nodes = state.nodes
        count = len(nodes)
        nic = filled_of(nodes.nic_gbyte_s, count, TYPICAL_NIC_GBYTE_S)
        numbers, rack = np.unique(nodes.rack, return_inverse=True)
        self._rack: list[int] = (rack.reshape(-1) + count).tolist()
        below = np.bincount(rack.reshape(-1), weights=nic, minlength=len(numbers))
        if nodes.uplink_gbyte_s is not None:
            known_uplinks = np.full(len(numbers), np.nan)
            known_uplinks[rack.reshape(-1)] = nodes.uplink_gbyte_s
            below = np.where(np.isnan(known_uplinks), below, known_uplinks)
        self.capacity: list[float] = [*nic.tolist(), *below.tolist()]
        pcie = nodes.pcie_gbyte_s
        known = np.zeros(0) if pcie is None else pcie[~np.isnan(pcie)]
        self.widest = float(known.min()) if len(known) else math.inf
        """GB/s that no job exceeds; infinite where it is not known."""
        self._typical_nic = float(np.median(nic)) if count else TYPICAL_NIC_GBYTE_S
        self._narrowest_uplink = float(below.min()) if len(below) else math.inf
        self._largest_node = max(int(nodes.gpus.max()), 1) if count else 1
        self._largest_rack = max(Counter(self._rack).values(), default=1)
        self._count = count

    def usual_speed(self, racks: int, ring: RingTime | None) -> RingSpeed:
        """Return the speed that a job on several nodes of so many racks usually has, alone."""
        return self._inside(RingSpeed(self._typical_nic, self._narrowest_uplink if racks > 1 else math.inf), ring)

    def speed(self, links: tuple[int, ...], ring: RingTime | None) -> RingSpeed:
        """Return the speed of a job with these links for itself."""
        nics = [self.capacity[link] for link in links if link < self._count]
        uplinks = [self.capacity[link] for link in links if link >= self._count]
        return self._inside(RingSpeed(min(nics, default=math.inf), min(uplinks, default=math.inf)), ring)

    def _inside(self, speed: RingSpeed, ring: RingTime | None) -> RingSpeed:
        """Return that speed with what limits a job inside its nodes; a measured ring includes that."""
        return speed if ring is not None else RingSpeed(min(self.widest, speed.nic), speed.uplink)

    @property
    def num_racks(self) -> int:
        """Number of racks."""
        return len(set(self._rack))

    def fewest_nodes(self, gpus: int) -> int:
        """Return the fewest nodes that can have so many GPUs."""
        return -(-gpus // self._largest_node)

    def links(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the links of a job on these nodes that it shares with others."""
        if len(nodes) < 2:
            return ()
        racks = {self._rack[node] for node in nodes}
        return (*nodes, *sorted(racks)) if len(racks) > 1 else nodes

    def racks(self, nodes: tuple[int, ...]) -> int:
        """Return the number of racks of these nodes."""
        return len({self._rack[node] for node in nodes})

    def reduce_s(
        self, step_model: StepModel, gpus: int, nodes: int, racks: int, speed: RingSpeed, ring: RingTime | None
    ) -> float:
        """Return the seconds of one reduction at that speed, with all links for itself.

        With a measured ring: the time that was measured, longer where links are slow (`RingTime.seconds_over`).
        """
        sent = 2 * (nodes - 1) / nodes * step_model.bytes if nodes > 1 else 0.0
        if ring is not None:
            return ring.seconds_over(gpus, step_model.bytes, racks, sent, speed)
        return sent / (speed.narrowest * GB)

    def best_reduce_s(self, step_model: StepModel, gpus: int, racks: int, ring: RingTime | None) -> float:
        """Return the same on the fewest nodes in the fewest racks (with a measured ring: never more racks than the job has)."""
        nodes = self.fewest_nodes(gpus)
        fewest = -(-nodes // self._largest_rack)
        speed = self.usual_speed(fewest, ring)
        fewest = fewest if ring is None else min(racks, fewest)
        return self.reduce_s(step_model, gpus, min(nodes, self._count), fewest, speed, ring)

    def far_reduce_s(self, step_model: StepModel, gpus: int, ring: RingTime | None) -> float:
        """Return the same on two racks (one, where there is no other) and on at least two nodes."""
        racks = min(2, self.num_racks)
        nodes = min(max(2, self.fewest_nodes(gpus)), self._count)
        return self.reduce_s(step_model, gpus, nodes, racks, self.usual_speed(racks, ring), ring)
