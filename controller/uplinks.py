"""The links that jobs share beyond their nodes: of every switch the one to the switch above, where Slurm knows a tree of them.

A job uses the uplink of a switch when it has nodes below it and others that are not. How fast an uplink is Slurm seldom tells:
whoever crosses the same one counts as near, be it a bottleneck or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from controller.slurm.client import SlurmFacts
from controller.windows import Links, own_nodes

if TYPE_CHECKING:  # the simulator comes with it
    from simulator.topology.slurm import Switch

_UPLINK = "uplink of {}"
"""No node can be called so: its name has no blanks."""


def links_of(facts: SlurmFacts, read: Callable[[Path], str] = Path.read_text) -> Links:
    """The links of the cluster that this Slurm runs. Raises ConfigurationError and SlurmReplyError; reads files."""
    from controller.live_cluster import switches_told

    switches = switches_told(facts, read)
    return uplinks(switches) if switches else own_nodes


def uplinks(switches: Sequence[Switch]) -> Links:
    """The nodes, and the uplinks that a job on them crosses."""
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
