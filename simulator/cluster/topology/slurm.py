"""A tree of named switches, and how it stands in the words of a live Slurm: topology.conf for switches, node lines for GPUs.

Node lines are those of slurm.conf or of `scontrol show node --oneliner` (`NodeName=n[1-4] Gres=gpu:a100:8 Sockets=2`); lines
without `NodeName=` are passed over. Of topology.conf are read `SwitchName=`, `Nodes=`, `Switches=` and `LinkSpeed=`. Slurm leaves
the unit of LinkSpeed open; here it is Gb/s of the switch's link to the one above, and 1, Slurm's default, means not known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from policies.serving.runtime.hostlist import expand
from simulator.cluster.topology.generators import NIC_GBS, UPLINK_GBS, flat
from simulator.cluster.topology.topology import Inside, Topology
from simulator.cluster.topology.tree import LinkList, TreeRoutes
from simulator.errors import ClusterError

_PAIR = re.compile(r"(?<![A-Za-z])([A-Za-z]++)=(\S*)")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]{1,6})(?![0-9])")
_SYSTEM, _AFTER_SYSTEM = " OS=", " RealMemory="
"""Begin and end of a node's kernel in scontrol's output, such as "Linux 6.1.0 #1 SMP": its "#" does not begin a comment."""
_UPLINK = "switch {} uplink"
"""The name of a switch's link to the one above."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node with GPUs."""

    name: str
    gpus: int
    sockets: int


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch, and what is below it."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    uplink_gbs: float | None


def parse_nodes(text: str) -> list[SlurmNode]:
    """Return the nodes that have GPUs, in the order of the text. Raises ClusterError."""
    found: dict[str, SlurmNode] = {}
    for line, pairs in _lines(text):
        if "nodename" not in pairs or pairs["nodename"].upper() == "DEFAULT":
            continue
        gpus = sum(int(count) for count in _GPUS.findall(pairs.get("gres", "")))
        if not gpus:
            continue
        for name in _names(pairs["nodename"], f"line {line}"):
            sockets = _number(pairs.get("sockets", pairs.get("socketsperboard", "1")), f"line {line}")
            found[name] = SlurmNode(name, gpus, max(1, min(int(sockets), gpus)))
    if not found:
        raise ClusterError("no node has GPUs", mend="give node lines with NodeName= and Gres=gpu:...")
    return list(found.values())


def parse_switches(text: str) -> list[Switch]:
    """Return the switches of a topology.conf. Raises ClusterError."""
    switches = []
    for line, pairs in _lines(text):
        if "switchname" not in pairs:
            continue
        where = f"line {line}"
        speed = _number(pairs.get("linkspeed", "1"), where)
        switches.append(
            Switch(
                pairs["switchname"],
                _names(pairs["nodes"], where) if "nodes" in pairs else (),
                _names(pairs["switches"], where) if "switches" in pairs else (),
                speed / 8 if speed > 1 else None,
            )
        )
    return switches


def slurm_topology(
    switches: Sequence[Switch],
    nodes: Sequence[SlurmNode],
    *,
    nic_gbs: float = NIC_GBS,
    uplink_gbs: float = UPLINK_GBS,
    inside: Inside | None = None,
) -> Topology:
    """Return the tree of switches over those nodes; a rack is a switch with nodes. Nodes below none share a rack of their own.

    Uplinks of unknown speed have `uplink_gbs`. Where several switches are on top, one that never limits joins them. With no
    switch above any of the nodes the network is flat.
    """
    parent = _parents(switches)
    leaf = _leaves(switches)
    if not any(node.name in leaf for node in nodes):
        return flat([node.gpus for node in nodes], [node.sockets for node in nodes], nic_gbs=nic_gbs, inside=inside)
    known = {switch.name: switch for switch in switches}
    links = LinkList()
    nic_links = links.add_nics(range(len(nodes)), nic_gbs)
    uplinks = {
        name: links.add(_UPLINK.format(name), known[name].uplink_gbs or uplink_gbs)
        for name in dict.fromkeys(name for node in nodes for name in _chain(leaf.get(node.name), parent))
    }
    above = tuple(tuple(uplinks[name] for name in _chain(leaf.get(node.name), parent)) for node in nodes)
    racks = _numbered([leaf.get(node.name) for node in nodes])
    tops = [next(iter(reversed(_chain(leaf.get(node.name), parent))), None) for node in nodes]
    return Topology(
        "switches",
        tuple(node.gpus for node in nodes),
        tuple(node.sockets for node in nodes),
        racks,
        _numbered(tops),
        tuple(links.gbs),
        tuple(links.names),
        TreeRoutes(nic_links, above),
        inside or Inside(),
    )


def switches_of(topology: Topology, nodes: Sequence[str]) -> list[Switch]:
    """Return the switches from which `slurm_topology` made that network, if a node is below them; `nodes` are the nodes' names."""
    before, after = _UPLINK.split("{}")
    routes = topology.routes
    assert isinstance(routes, TreeRoutes)
    below: dict[int, tuple[dict[str, None], dict[str, None]]] = {}
    for node, chain in zip(nodes, routes.above, strict=True):
        for at, link in enumerate(chain):
            its_nodes, its_switches = below.setdefault(link, ({}, {}))
            if at == 0:
                its_nodes[node] = None
            else:
                its_switches[_between(topology.names[chain[at - 1]], before, after)] = None
    return [
        Switch(_between(topology.names[link], before, after), tuple(found[0]), tuple(found[1]), topology.network[link])
        for link, found in below.items()
    ]


def _between(text: str, before: str, after: str) -> str:
    return text.removeprefix(before).removesuffix(after)


def require_tree(switches: Sequence[Switch]) -> None:
    """Raise ClusterError where the switches are not a tree, or a node is below two of them."""
    _parents(switches)
    _leaves(switches)


def _parents(switches: Sequence[Switch]) -> dict[str, str]:
    """Return the switch above each. Raises ClusterError for one that does not exist, has two above it, or is above itself."""
    names = Counter(switch.name for switch in switches)
    parent: dict[str, str] = {}
    for switch in switches:
        if names[switch.name] > 1:
            raise ClusterError(f"the switch {switch.name} appears twice", mend="give it one SwitchName line")
        for below in switch.switches:
            if below not in names:
                raise ClusterError(
                    f"the switch {switch.name} is above {below}, which is not there", mend="give it a SwitchName line"
                )
            if below in parent:
                raise ClusterError(
                    f"the switch {below} is below {parent[below]} and {switch.name}", mend="leave one of them out"
                )
            parent[below] = switch.name
    for name in names:
        at, seen = name, {name}
        while at in parent:
            at = parent[at]
            if at in seen:
                raise ClusterError(f"the switch {at} is above itself", mend="make the switches a tree")
            seen.add(at)
    return parent


def _leaves(switches: Sequence[Switch]) -> dict[str, str]:
    """Return the switch of every node. Raises ClusterError for a node below two switches."""
    leaf: dict[str, str] = {}
    for switch in switches:
        for node in switch.nodes:
            if node in leaf:
                raise ClusterError(
                    f"the node {node} is below {leaf[node]} and {switch.name}", mend="leave it out of one of them"
                )
            leaf[node] = switch.name
    return leaf


def _chain(leaf: str | None, parent: Mapping[str, str]) -> list[str]:
    """Return the switches above a node, from the lowest up."""
    chain = []
    while leaf is not None:
        chain.append(leaf)
        leaf = parent.get(leaf)
    return chain


def _numbered(labels: Sequence[str | None]) -> tuple[int, ...]:
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return tuple(numbers[label] for label in labels)


def _lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield number and keys (in lower case) of every line; a comment ends it, and a backslash at its end joins it to the next.

    If a key occurs twice, the first counts: later text may be free text (Reason=, Comment=).
    """
    joined = re.sub(r"\\\n", " ", text)
    for number, line in enumerate(joined.splitlines(), start=1):
        pairs: dict[str, str] = {}
        for key, value in _PAIR.findall(_without_system(line).partition("#")[0]):
            pairs.setdefault(key.lower(), value)
        yield number, pairs


def _without_system(line: str) -> str:
    begin = line.find(_SYSTEM)
    end = line.find(_AFTER_SYSTEM, begin) if begin >= 0 else -1
    return line[:begin] + line[end:] if end >= 0 else line


def _names(text: str, where: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except ValueError as error:
        raise ClusterError(f"{where}: {error}", mend="write names as Slurm does, n[1-4]") from None


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = inf
    if not isfinite(number):
        raise ClusterError(f"{where}: {text[:80]!r} is not a number", mend="give one") from None
    return number
