"""Racks of nodes and the speeds of their uplinks: the part of the switch tree that policies see.

In a tree with more levels policies see only the lowest links; the links above are assumed to be no bottleneck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from policies.model import FloatColumn, IntColumn

if TYPE_CHECKING:  # the simulator comes with it
    from simulator.cluster.topology.slurm import Switch

_NONE = ""


@dataclass(frozen=True)
class Racks:
    """Racks of all nodes. Without data all nodes are in one rack; nodes without a switch share a rack of their own."""

    leaf: Mapping[str, str] = field(default_factory=dict)
    """Leaf switch of each node."""
    uplink_gbyte_s: Mapping[str, float] = field(default_factory=dict)
    """Known speeds of the switches' uplinks."""

    def of(self, node: str) -> str:
        """Return the leaf switch of a node; empty where it has none."""
        return self.leaf.get(node, _NONE)

    def numbers(self, nodes: Sequence[str]) -> IntColumn:
        """Return the number of each node's rack."""
        known: dict[str, int] = {}
        return np.array([known.setdefault(self.of(node), len(known)) for node in nodes], dtype=np.int64)

    def speeds(self, nodes: Sequence[str]) -> FloatColumn | None:
        """Return the uplink speed of each node's rack in GB/s, NaN when unknown; None when no speed is known."""
        if not self.uplink_gbyte_s:
            return None
        found = [self.uplink_gbyte_s.get(self.of(node), nan) for node in nodes]
        return np.array(found, dtype=np.float64)


ONE_RACK = Racks()


def racks_of(switches: Sequence[Switch]) -> Racks:
    """Return the racks of that tree."""
    leaf = {node: switch.name for switch in switches for node in switch.nodes}
    below = {name for switch in switches for name in switch.switches}
    # The topmost switch has no uplink.
    speeds = {each.name: each.uplink_gbs for each in switches if each.uplink_gbs is not None and each.name in below}
    return Racks(leaf, {name: speed for name, speed in speeds.items() if name in leaf.values()})
