"""Which nodes hang on the same leaf switch, and how fast that is linked to the others: what policies know of the tree of switches.

Of a tree with more levels they see the lowest links alone: those above are taken for no bottleneck.
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
    """Nothing known: one rack. Nodes below no switch share a rack of their own."""

    leaf: Mapping[str, str] = field(default_factory=dict)
    """The switch of each node."""
    uplink_gbyte_s: Mapping[str, float] = field(default_factory=dict)
    """Speeds of switches' links to the ones above, as far as they are known."""

    def numbers(self, nodes: Sequence[str]) -> IntColumn:
        """The number of each node's rack."""
        known: dict[str, int] = {}
        return np.array([known.setdefault(self.leaf.get(node, _NONE), len(known)) for node in nodes], dtype=np.int64)

    def speeds(self, nodes: Sequence[str]) -> FloatColumn | None:
        """Of each node's rack, GB/s, NaN where it is not known; None where none is."""
        if not self.uplink_gbyte_s:
            return None
        found = [self.uplink_gbyte_s.get(self.leaf.get(node, _NONE), nan) for node in nodes]
        return np.array(found, dtype=np.float64)


ONE_RACK = Racks()


def racks_of(switches: Sequence[Switch]) -> Racks:
    """The racks of that tree."""
    leaf = {node: switch.name for switch in switches for node in switch.nodes}
    below = {name for switch in switches for name in switch.switches}
    # Nothing leaves a switch that hangs on none.
    speeds = {each.name: each.uplink_gbs for each in switches if each.uplink_gbs is not None and each.name in below}
    return Racks(leaf, {name: speed for name, speed in speeds.items() if name in leaf.values()})
