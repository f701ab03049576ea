"""The simulated cluster: the GPUs of each node, their speeds, and the links between them.

A cluster is `NxG` (N nodes of G GPUs in one rack) or a TOML file:

    [[nodes]]            # as many blocks as there are kinds of nodes, in node order
    count = 8            # or names = "gpu[01-08]"
    gpus = 8
    sockets = 2          # default 2 from four GPUs on, else 1
    switches = 4         # PCIe switches, a multiple of the sockets; default one for each socket
    nvlink = 4           # GPUs of each group that NVLink connects, 2 or more; default none
    speed = 1.0          # of one GPU, relative to the others; the trace's durations mean the fastest
    rack = "r1"          # default: racks of `rack_size` nodes, or one rack

    [variability]        # GPUs of one kind differ in speed: each node's is drawn (variability.py); left out: they do not differ
    seed = 1
    scale = 1.0          # 1: as measured on eight nodes; 2: twice as far from the median

    [network]
    kind = "racks"       # flat, racks, switches, fat-tree, vl2, bcube; default racks if there are several, else flat
    nic_gbs = 12.5       # GB/s in each direction; the other keys are those of the generators in simulator/cluster/topology
    nvlink_gbs = 50.0    # inside a node: between two GPUs over NVLink, below one PCIe switch (pcie_gbs, 16), below two
    bridge_gbs = 12.0    # switches of one socket (default pcie_gbs), and between sockets (socket_gbs, 37.5; at most bridge_gbs)

    [[network.switches]] # of kind "switches" only: any tree; `rack` is then the lowest switch above the nodes
    name = "r1"
    below = "spine"      # the switch above it; left out at the top
    uplink_gbs = 5.0     # of its link to that one; default `uplink_gbs` of the network

`headway cluster` writes such a file of a live Slurm, `cluster_toml` (simulator/cluster/toml.py) of any cluster of nodes in a tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.documents import DocumentError, is_number, parse_toml
from policies.serving.runtime.hostlist import expand
from simulator.cluster.topology import Inside, Topology, bcube, fat_tree, flat, rack_tree, vl2
from simulator.cluster.topology.generators import NIC_GBS, UPLINK_GBS
from simulator.cluster.variability import drawn_speeds
from simulator.errors import ClusterError

MOST_NODES = 200_000
MOST_GPUS = 1024
"""Maximum number of GPUs of one node."""
_SIMPLE = re.compile(r"([1-9]\d*)x([1-9]\d*)")
_NODE_KEYS = {"count", "names", "gpus", "sockets", "switches", "nvlink", "speed", "rack"}
_INSIDE_KEYS = {"pcie_gbs", "socket_gbs", "bridge_gbs", "nvlink_gbs"}
_SWITCH_KEYS = {"name", "below", "uplink_gbs"}


@dataclass(frozen=True)
class Cluster:
    """Nodes in order. Invariant: every column has one entry per node, every node has a GPU, racks are counted from 0."""

    names: tuple[str, ...]
    gpus: tuple[int, ...]
    sockets: tuple[int, ...]
    speed: tuple[float, ...]
    """Speed of one GPU, relative to the others; the trace's durations are for the fastest."""
    topology: Topology
    """Includes the speeds if they differ."""

    @property
    def racks(self) -> tuple[int, ...]:
        """Rack of each node."""
        return self.topology.racks

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.gpus)

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(self.gpus)

    @staticmethod
    def uniform(nodes: int, gpus: int) -> Cluster:
        """Make `NxG`: equal nodes in one rack."""
        sockets = (default_sockets(gpus),) * nodes
        counts = (gpus,) * nodes
        names = tuple(f"n{node}" for node in range(nodes))
        return Cluster(names, counts, sockets, (1.0,) * nodes, flat(counts, sockets))


def default_sockets(gpus: int) -> int:
    """Return two sockets from four GPUs on, as in the machines of RL-TAPS and MARL; else one."""
    return 2 if gpus >= 4 else 1


def parse_cluster(text: str) -> Cluster:
    """Parse `NxG`, or read a TOML file. Raises ClusterError."""
    simple = _SIMPLE.fullmatch(text.strip())
    if simple:
        nodes, gpus = int(simple[1]), int(simple[2])
        if nodes > MOST_NODES or gpus > MOST_GPUS:
            raise ClusterError(
                f"{text} is too large", mend=f"take at most {MOST_NODES} nodes of at most {MOST_GPUS} GPUs each"
            )
        return Cluster.uniform(nodes, gpus)
    path = Path(text)
    if path.suffix != ".toml" and not path.is_file():
        raise ClusterError(
            f"{text!r} is not a cluster", mend="give NxG (nodes x GPUs of each, 8x8), or the path of a TOML file"
        )
    return read_cluster(path)


def read_cluster(path: Path | str) -> Cluster:
    """Read the cluster of a TOML file. Raises ClusterError."""
    try:
        table = parse_toml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"cannot be read ({error.strerror})", mend="check the path", path=path) from error
    except (DocumentError, UnicodeDecodeError) as error:
        raise ClusterError(f"is not valid TOML ({error})", mend="correct it there", path=path) from error
    try:
        return cluster_of(table)
    except ClusterError as error:
        raise error.at(path) from None


def cluster_of(table: Mapping[str, Any]) -> Cluster:
    """Make the cluster that a TOML table describes. Raises ClusterError."""
    _known(table, {"nodes", "network", "variability"}, "")
    blocks = table.get("nodes")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise ClusterError("there are no nodes", mend="give at least one [[nodes]] block", key="nodes")
    rows = [row for at, block in enumerate(blocks) for row in _nodes(block, f"nodes[{at}]")]
    if len(rows) > MOST_NODES:
        raise ClusterError(f"{len(rows)} nodes are too many", mend=f"take at most {MOST_NODES}", key="nodes")
    names = tuple(row.name or f"n{node}" for node, row in enumerate(rows))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ClusterError(f"two nodes are called {twice}", mend="give each node a name of its own", key="nodes")
    network = table.get("network", {})
    if not isinstance(network, dict):
        raise ClusterError("is not a table", mend="write [network]", key="network")
    if "variability" in table:
        rows = _varied(rows, table["variability"])
    topology = _topology(rows, network)
    speed = tuple(row.speed for row in rows)
    return Cluster(
        names,
        tuple(row.gpus for row in rows),
        tuple(row.sockets for row in rows),
        speed,
        _with_node_columns(topology, rows),
    )


def _with_node_columns(topology: Topology, rows: Sequence[_Row]) -> Topology:
    """Return the topology with speeds, PCIe switches and NVLink groups of nodes, each where nodes differ from the default."""
    speed = tuple(row.speed for row in rows)
    switches = tuple(row.switches for row in rows)
    nvlink = tuple(row.nvlink for row in rows)
    return replace(
        topology,
        speed=speed if len(set(speed)) > 1 else topology.speed,
        switches=switches if switches != topology.sockets else (),
        nvlink=nvlink if any(nvlink) else (),
    )


def slurm_cluster(topology: str, nodes: str) -> Cluster:
    """Make the cluster of a live Slurm's nodes with GPUs, from the texts of its topology.conf ('' if none) and its node lines.

    See simulator/cluster/topology/slurm.py. Raises ClusterError.
    """
    from simulator.cluster.topology.slurm import parse_nodes, parse_switches, slurm_topology

    found = parse_nodes(nodes)
    network = slurm_topology(parse_switches(topology), found)
    names = tuple(node.name for node in found)
    return Cluster(names, network.gpus, network.sockets, (1.0,) * len(found), network)


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    gpus: int
    sockets: int
    switches: int
    nvlink: int
    speed: float
    rack: str


def _nodes(block: Mapping[str, Any], key: str) -> list[_Row]:
    """Return the nodes of one block."""
    _known(block, _NODE_KEYS, key)
    gpus = _whole(block, "gpus", key, 1, MOST_GPUS)
    sockets = _whole(block, "sockets", key, 1, gpus, default_sockets(gpus))
    switches = _whole(block, "switches", key, 1, gpus, sockets)
    if switches % sockets:
        raise ClusterError(
            f"{switches} PCIe switches for {sockets} sockets",
            mend="give a multiple of the sockets",
            key=f"{key}.switches",
        )
    nvlink = _whole(block, "nvlink", key, 2, gpus) if "nvlink" in block else 0
    speed = _positive(block, "speed", key, 1.0)
    rack = block.get("rack", "")
    if not isinstance(rack, str | int) or isinstance(rack, bool):
        raise ClusterError(f"{rack!r} is not a rack", mend="give its name or number", key=f"{key}.rack")
    names: Sequence[str] = ()
    if "names" in block:
        names = _expanded(block["names"], f"{key}.names")
    count = _whole(block, "count", key, 1, MOST_NODES, len(names) or None)
    if names and count != len(names):
        raise ClusterError(
            f"{count} nodes have {len(names)} names", mend="leave count out, or let both agree", key=f"{key}.count"
        )
    return [_Row(name, gpus, sockets, switches, nvlink, speed, str(rack)) for name in names or [""] * count]


def _varied(rows: Sequence[_Row], variability: object) -> list[_Row]:
    """Return the nodes with drawn speeds."""
    if not isinstance(variability, dict):
        raise ClusterError("is not a table", mend="write [variability]", key="variability")
    _known(variability, {"seed", "scale"}, "variability")
    seed = _whole(variability, "seed", "variability", 0, 2**31, 0)
    scale = _positive(variability, "scale", "variability", 1.0)
    speeds = drawn_speeds([row.speed for row in rows], seed, scale)
    return [replace(row, speed=speed) for row, speed in zip(rows, speeds, strict=True)]


def _expanded(text: object, key: str) -> tuple[str, ...]:
    try:
        return expand(text if isinstance(text, str) else "")
    except ValueError as error:
        raise ClusterError(str(error), mend='write names as in "gpu[01-08]"', key=key) from None


def _topology(rows: Sequence[_Row], network: Mapping[str, Any]) -> Topology:
    """Make the network among those nodes."""
    if network.get("kind") == "switches":
        return _switch_tree(rows, network)
    racks = _racks(rows, network)
    kind = network.get("kind", "racks" if max(racks) else "flat")
    gpus, sockets = [row.gpus for row in rows], [row.sockets for row in rows]
    makers: dict[str, tuple[set[str], Callable[..., Topology]]] = {
        "flat": ({"nic_gbs"}, lambda **options: flat(gpus, sockets, **options)),
        "racks": ({"nic_gbs", "uplink_gbs", "nics"}, lambda **options: rack_tree(gpus, sockets, racks, **options)),
        "fat-tree": ({"k", "tiers_gbs"}, lambda **options: fat_tree(gpus, sockets, **options)),
        "vl2": ({"k", "servers", "tiers_gbs"}, lambda **options: vl2(gpus, sockets, **options)),
        "bcube": ({"n", "k", "tiers_gbs"}, lambda **options: bcube(gpus, sockets, **options)),
    }
    if kind not in makers:
        raise ClusterError(
            f"{kind!r} is not a kind of network", mend=f"take one of {', '.join(makers)}, switches", key="network.kind"
        )
    if kind not in {"racks", "flat"} and any(row.rack for row in rows):
        raise ClusterError(f"{kind} makes its own racks", mend="leave rack out of the nodes", key="network.kind")
    if kind == "flat" and max(racks):
        raise ClusterError("a flat network has one rack", mend='take kind = "racks"', key="network.kind")
    keys, maker = makers[kind]
    _known(network, {"kind", "rack_size", *_INSIDE_KEYS, *keys}, "network")
    return maker(inside=_inside(network), **{key: _option(network, key) for key in keys if key in network})


def _inside(network: Mapping[str, Any]) -> Inside:
    return Inside(
        _positive(network, "pcie_gbs", "network", Inside().pcie_gbs),
        _positive(network, "socket_gbs", "network", Inside().socket_gbs),
        _positive(network, "bridge_gbs", "network", 0.0) if "bridge_gbs" in network else None,
        _positive(network, "nvlink_gbs", "network", Inside().nvlink_gbs),
    )


def _switch_tree(rows: Sequence[_Row], network: Mapping[str, Any]) -> Topology:
    """Make a network of named switches; `rack` is the switch directly above a node; a node without a rack is below no switch."""
    from simulator.cluster.topology.slurm import SlurmNode, Switch, slurm_topology

    _known(network, {"kind", "nic_gbs", "uplink_gbs", "switches", *_INSIDE_KEYS}, "network")
    blocks = network.get("switches")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(block, dict) for block in blocks):
        raise ClusterError("there are none", mend="give [[network.switches]] blocks", key="network.switches")
    above = dict(_switch(block, f"network.switches[{at}]") for at, block in enumerate(blocks))
    if len(above) < len(blocks):
        raise ClusterError("two switches have the same name", mend="give each another name", key="network.switches")
    wanted = {parent: "network.switches" for parent in above.values() if parent}
    wanted |= {row.rack: "nodes" for row in rows if row.rack}
    for name, key in wanted.items():
        if name not in above:
            raise ClusterError(f"{name!r} is not a switch", mend="give it a [[network.switches]] block", key=key)
    names = [row.name or f"n{node}" for node, row in enumerate(rows)]
    racks, below = _by(names, [row.rack for row in rows]), _by(list(above), list(above.values()))
    speeds = [
        _positive(
            block, "uplink_gbs", f"network.switches[{at}]", _positive(network, "uplink_gbs", "network", UPLINK_GBS)
        )
        for at, block in enumerate(blocks)
    ]
    return slurm_topology(
        [Switch(name, racks.get(name, ()), below.get(name, ()), gbs) for name, gbs in zip(above, speeds, strict=True)],
        [SlurmNode(name, row.gpus, row.sockets) for name, row in zip(names, rows, strict=True)],
        nic_gbs=_positive(network, "nic_gbs", "network", NIC_GBS),
        inside=_inside(network),
    )


def _switch(block: Mapping[str, Any], key: str) -> tuple[str, str]:
    """Return the switch's name, and that of the switch above; '' at the top."""
    _known(block, _SWITCH_KEYS, key)
    name, above = block.get("name"), block.get("below", "")
    if not isinstance(name, str) or not name:
        raise ClusterError(f"{name!r} is not a name", mend="give one in quotes", key=f"{key}.name")
    if not isinstance(above, str):
        raise ClusterError(f"{above!r} is not a name", mend="give the switch above it", key=f"{key}.below")
    return name, above


def _by(members: Sequence[str], labels: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the members of each label, in order."""
    found: dict[str, list[str]] = {}
    for member, label in zip(members, labels, strict=True):
        found.setdefault(label, []).append(member)
    return {label: tuple(its) for label, its in found.items()}


def _racks(rows: Sequence[_Row], network: Mapping[str, Any]) -> list[int]:
    """Return the rack of every node: by its name in order of first occurrence, or so many nodes per rack."""
    labels = [row.rack for row in rows]
    if any(labels):
        if not all(labels) or "rack_size" in network:
            raise ClusterError(
                "racks are given in two ways", mend="give every block a rack, or rack_size alone", key="nodes"
            )
        numbers = {label: rack for rack, label in enumerate(dict.fromkeys(labels))}
        return [numbers[label] for label in labels]
    size = _whole(network, "rack_size", "network", 1, MOST_NODES, len(rows))
    return [node // size for node in range(len(rows))]


def _option(network: Mapping[str, Any], key: str) -> object:
    """Return one of the network's options."""
    if key == "tiers_gbs":
        tiers = network[key]
        if not isinstance(tiers, list) or not tiers:
            raise ClusterError(
                f"{tiers!r} is not a list", mend="give one bandwidth for each tier", key=f"network.{key}"
            )
        return tuple(_positive({key: gbs}, key, "network", 0.0) for gbs in tiers)
    if key.endswith("_gbs"):
        return _positive(network, key, "network", 0.0)
    return _whole(network, key, "network", 0 if key == "k" else 1, MOST_NODES)


def _known(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            place = f"{where}.{key}" if where else key
            raise ClusterError("is not a key here", mend=f"take one of {', '.join(sorted(keys))}", key=place)


def _whole(table: Mapping[str, Any], key: str, where: str, least: int, most: int, default: int | None = None) -> int:
    """Check a whole number in that range."""
    value = table.get(key, default)
    if value is None:
        raise ClusterError("is missing", mend=f"give a whole number from {least} on", key=f"{where}.{key}")
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ClusterError(
            f"{value!r} is not a whole number from {least} to {most}", mend="give one", key=f"{where}.{key}"
        )
    return value


def _positive(table: Mapping[str, Any], key: str, where: str, default: float) -> float:
    """Check a positive, finite number."""
    value = table.get(key, default)
    if not (is_number(value) and value > 0):
        raise ClusterError(f"{value!r} is not a positive number", mend="give one", key=f"{where}.{key}")
    return float(value)
