"""Write a cluster as the TOML file that `simulator.cluster.cluster` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from policies.serving.runtime.hostlist import fold
from simulator.cluster.cluster import Cluster
from simulator.cluster.topology.slurm import switches_of
from simulator.cluster.topology.topology import NVLINK_GBS
from simulator.cluster.topology.tree import TreeRoutes
from simulator.errors import ClusterError

_WRITTEN = ("flat", "racks", "switches")


def cluster_toml(cluster: Cluster, notes: Sequence[str] = ()) -> str:
    """Return text from which `read_cluster` makes an equal cluster, below the notes as comments. Raises ClusterError.

    Racks get their numbers anew, in the order of their first nodes, as they have them in every cluster that was read.
    """
    table = cluster_table(cluster)
    network = dict(table["network"])
    switches = network.pop("switches", [])
    blocks = [
        *(_block("[[nodes]]", block) for block in table["nodes"]),
        _block("[network]", network),
        *(_block("[[network.switches]]", switch) for switch in switches),
    ]
    comments = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    return "\n".join([*([comments] if comments else []), *blocks])


def cluster_table(cluster: Cluster) -> dict[str, Any]:
    """Return a table of which `cluster_of` makes an equal cluster. Raises ClusterError if no table describes its network."""
    if cluster.topology.kind not in _WRITTEN:
        raise ClusterError(
            f"a network of kind {cluster.topology.kind} is made by a rule and cannot be written down link by link",
            mend=f"keep the file it came from, or take a network of kind {', '.join(_WRITTEN)}",
        )
    racks = _rack_names(cluster)
    topology = cluster.topology
    switches, nvlink = topology.switches or cluster.sockets, topology.nvlink or (0,) * cluster.num_nodes
    kinds = zip(cluster.gpus, cluster.sockets, switches, nvlink, cluster.speed, racks, strict=True)
    nodes = []
    for (gpus, sockets, below, linked, speed, rack), group in groupby(
        zip(kinds, cluster.names, strict=True), key=lambda pair: pair[0]
    ):
        block = {"names": fold([name for _, name in group]), "gpus": gpus, "sockets": sockets}
        block |= ({"switches": below} if below != sockets else {}) | ({"nvlink": linked} if linked else {})
        nodes.append(block | ({"speed": speed} if speed != 1.0 else {}) | ({"rack": rack} if rack else {}))
    return {"nodes": nodes, "network": _network(cluster)}


def _rack_names(cluster: Cluster) -> Sequence[str]:
    """Return the rack name of each node's block; '' where it has none."""
    if cluster.topology.kind == "switches":
        leaf = {node: switch.name for switch in switches_of(cluster.topology, cluster.names) for node in switch.nodes}
        return [leaf.get(name, "") for name in cluster.names]
    if cluster.topology.kind == "racks":
        return [f"r{rack}" for rack in cluster.racks]
    return [""] * cluster.num_nodes


def _network(cluster: Cluster) -> dict[str, Any]:
    topology = cluster.topology
    routes = topology.routes
    assert isinstance(routes, TreeRoutes)
    network: dict[str, Any] = {"kind": topology.kind, "nic_gbs": topology.network[routes.nic_links[0][0]]}
    if topology.kind == "racks":
        network |= {"uplink_gbs": topology.network[routes.above[0][0]], "nics": len(routes.nic_links[0])}
    inside = topology.inside
    network |= {"pcie_gbs": inside.pcie_gbs, "socket_gbs": inside.socket_gbs}
    network |= {"bridge_gbs": inside.bridge_gbs} if inside.bridge_gbs is not None else {}
    network |= {"nvlink_gbs": inside.nvlink_gbs} if topology.nvlink or inside.nvlink_gbs != NVLINK_GBS else {}
    if topology.kind == "switches":
        switches = switches_of(topology, cluster.names)
        above = {name: switch.name for switch in switches for name in switch.switches}
        network["switches"] = [
            {"name": switch.name}
            | ({"below": above[switch.name]} if switch.name in above else {})
            | {"uplink_gbs": switch.uplink_gbs}
            for switch in switches
        ]
    return network


def _block(heading: str, values: Mapping[str, Any]) -> str:
    # A string or number of JSON is one of TOML: the characters of a name that TOML does not take as they are, JSON escapes.
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
    return f"{heading}\n{''.join(lines)}"
