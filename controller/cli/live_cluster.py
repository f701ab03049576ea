"""The managed cluster for the simulator: nodes and switches from slurmctld, or switches from a topology.conf that is named.

Values that Slurm does not show are assumed; each assumption becomes a note in the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.base.text import clip
from controller.slurm.client import SlurmFacts
from controller.slurm.configuration.topology import SHOW_TOPOLOGY, ReadFile, as_topology_conf, topology_text
from controller.slurm.model.cluster import SlurmNode
from controller.slurm.scontrol.parse_nodes import parse_node
from policies.serving.runtime.hostlist import fold
from simulator.cluster.cluster import Cluster, slurm_cluster
from simulator.cluster.topology.generators import UPLINK_GBS
from simulator.cluster.topology.slurm import parse_switches, switches_of
from simulator.errors import ClusterError


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster; each of its `notes` is a sentence on its origin or on an assumption."""

    cluster: Cluster
    notes: tuple[str, ...]


def live_cluster(
    facts: SlurmFacts,
    lines: Sequence[str],
    partitions: Sequence[str],
    shown_topology: str = "",
    topology_conf: Path | None = None,
    read: ReadFile | None = None,
) -> LiveCluster:
    """Return the nodes with GPUs of these partitions, and the switches above them. Raises ConfigurationError, SlurmReplyError.

    `shown_topology` is what `scontrol show topology` prints. `topology_conf` is a file to read instead.
    """
    known = [parse_node(line) for line in lines]
    managed = [not node.partitions.isdisjoint(partitions) for node in known]
    nodes = [node for node, ours in zip(known, managed, strict=True) if ours and node.gpus]
    if not nodes:
        raise ConfigurationError(
            f"scontrol show node: no node in {', '.join(partitions)} has GPUs; name partitions with GPUs as `partitions` in "
            "controller.toml, and give their nodes Gres=gpu:N in slurm.conf"
        )
    source = str(topology_conf or SHOW_TOPOLOGY)
    text = topology_text(topology_conf, read or _read) if topology_conf else as_topology_conf(shown_topology)
    wanted = {node.name for node in nodes}
    try:
        chosen = [line for line, node in zip(lines, known, strict=True) if node.name in wanted]
        cluster = slurm_cluster(text, "\n".join(chosen))
    except ClusterError as error:
        # The nodes have been parsed once already, so the problem is in the switches.
        raise ConfigurationError(str(error.at(topology_conf)) if topology_conf else f"{source}: {error}") from error
    left_out = sum(managed) - len(nodes)
    notes = (
        _origin(facts, partitions, left_out),
        *_network_notes(source, text, cluster),
        "Slurm reports no speeds of network cards, nor inside nodes: nic_gbs, pcie_gbs and socket_gbs (GB/s) are assumed.",
        *_speed_notes(nodes),
    )
    return LiveCluster(cluster, notes)


def _read(path: Path) -> str:
    """Return the text of a file. It may have comments that are no UTF-8; they are not written back."""
    return path.read_text(encoding="utf-8", errors="replace")


# --- notes


def _origin(facts: SlurmFacts, partitions: Sequence[str], left_out: int) -> str:
    version = ".".join(f"{part:02}" if place == 1 else str(part) for place, part in enumerate(facts.version))
    rest = f"; {left_out} of their nodes without GPUs {'is' if left_out == 1 else 'are'} left out" if left_out else ""
    return (
        f"Cluster {facts.cluster_name} (Slurm {version}), partitions {', '.join(partitions)}: every node with GPUs, those that "
        f"are down included{rest}."
    )


def _network_notes(source: str, text: str, cluster: Cluster) -> Iterator[str]:
    if cluster.topology.kind != "switches":
        yield f"{source} has no switch above these nodes: a flat network with one switch of unlimited speed is assumed."
        return
    yield f"Switches are those of {source}; LinkSpeed is taken as Gb/s of a switch's link to the one above."
    above_nodes = switches_of(cluster.topology, cluster.names)
    below_one = {node for switch in above_nodes for node in switch.nodes}
    lone = [name for name in cluster.names if name not in below_one]
    with_uplink = {switch.name for switch in parse_switches(text) if switch.uplink_gbs is not None}
    tops = {switch.name for switch in above_nodes} - {name for switch in above_nodes for name in switch.switches}
    if len(tops) == 1 and not lone:
        # No link leads above the topmost switch, so its speed does not matter.
        with_uplink |= tops
    if unknown := [switch.name for switch in above_nodes if switch.name not in with_uplink]:
        yield f"LinkSpeed is not known of {fold(unknown)}: uplink_gbs = {UPLINK_GBS} is assumed."
    if lone:
        yield f"No switch is above {fold(lone)}; one more rack with an unlimited uplink is assumed there."


def _speed_notes(nodes: Sequence[SlurmNode]) -> Iterator[str]:
    types: dict[str, list[str]] = {}
    for node in nodes:
        types.setdefault(node.gpu_type or "no one type", []).append(node.name)
    if len(types) > 1:
        shown = "; ".join(f"{re.sub(r'[^ -~]', '?', clip(kind))} on {fold(names)}" for kind, names in types.items())
        yield f"GPUs differ ({shown}), and are assumed to be equally fast; to change this, give blocks of nodes a speed."
