"""Links that jobs share beyond their nodes: the uplink of every switch, when Slurm knows a tree of switches.

A job uses the uplink of a switch when it has nodes below the switch and other nodes. Slurm seldom knows the speed of an uplink, so
jobs that use the same one count as neighbours, whether it is a bottleneck or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from controller.profiles.windows import Links, own_nodes

if TYPE_CHECKING:  # the simulator comes with it
    from simulator.cluster.topology.slurm import Switch

_UPLINK = "uplink of {}"
"""No node can have this name: node names have no spaces."""


def links_of(switches: Sequence[Switch]) -> Links:
    """Return a function that gives the nodes and the uplinks that a job uses; without switches, only the nodes."""
    if not switches:
        return own_nodes
    above = {below: switch.name for switch in switches for below in switch.switches}
    chains = {node: _chain(switch.name, above) for switch in switches for node in switch.nodes}

    def links(nodes: Collection[str]) -> Collection[str]:
        inside = Counter(switch for node in nodes for switch in chains.get(node, ()))
        return {*nodes, *(_UPLINK.format(switch) for switch, count in inside.items() if count < len(nodes))}

    return links


def _chain(switch: str, above: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switch and the switches above it. (A circle of switches has been refused before.)"""
    chain = [switch]
    while chain[-1] in above:
        chain.append(above[chain[-1]])
    return tuple(chain)
