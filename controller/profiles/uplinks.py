"""The links that jobs share beyond their nodes: of every switch the one to the switch above, where Slurm knows a tree of them.

A job uses the uplink of a switch when it has nodes below it and others that are not. How fast an uplink is Slurm seldom tells:
whoever crosses the same one counts as near, be it a bottleneck or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from controller.profiles.windows import Links, own_nodes

if TYPE_CHECKING:  # the simulator comes with it
    from simulator.cluster.topology.slurm import Switch

_UPLINK = "uplink of {}"
"""No node can be called so: its name has no blanks."""


def links_of(switches: Sequence[Switch]) -> Links:
    """The nodes, and the uplinks that a job on them crosses; without switches the nodes alone."""
    if not switches:
        return own_nodes
    above = {below: switch.name for switch in switches for below in switch.switches}
    chains = {node: _chain(switch.name, above) for switch in switches for node in switch.nodes}

    def links(nodes: Collection[str]) -> Collection[str]:
        inside = Counter(switch for node in nodes for switch in chains.get(node, ()))
        return {*nodes, *(_UPLINK.format(switch) for switch, count in inside.items() if count < len(nodes))}

    return links


def _chain(switch: str, above: Mapping[str, str]) -> tuple[str, ...]:
    """It and the switches above it. (Switches that are above themselves have been refused.)"""
    chain = [switch]
    while chain[-1] in above:
        chain.append(above[chain[-1]])
    return tuple(chain)
