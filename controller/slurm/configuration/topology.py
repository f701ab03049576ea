"""The switches above the nodes: what `scontrol show topology` prints, or a topology.conf that is named.

Slurm's answer is the only one to believe. Since Slurm 25.05 topology.yaml, where there is one, takes precedence over topology.conf
and TopologyPlugin, and a topology may be of blocks, rings or tori instead of switches. Each group of nodes of such a topology
counts as a switch of its own, because its nodes are near each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.errors import ConfigurationError
from controller.slurm.configuration.conf import read_slurm_conf

if TYPE_CHECKING:
    from simulator.cluster.topology.slurm import Switch

ReadFile = Callable[[Path], str]

SHOW_TOPOLOGY = "scontrol show topology"
_GROUP = re.compile(r"([A-Za-z][A-Za-z0-9]*)Name=(\S+)")
"""Begin of a line: "SwitchName=leaf1", "BlockName=b1"."""
_VALUE = re.compile(r" (Nodes|Switches|LinkSpeed)=(\S+)")


def switches_of(shown: str) -> list[Switch]:
    """Return the tree of switches that Slurm shows; empty when it has no topology. Raises ConfigurationError."""
    # Imported here, where there is a tree, so that a start without one does not wait for the simulator.
    from simulator.cluster.topology.slurm import parse_switches, require_tree
    from simulator.errors import ClusterError

    try:
        switches = parse_switches(as_topology_conf(shown))
        require_tree(switches)
    except ClusterError as error:
        raise ConfigurationError(f"{SHOW_TOPOLOGY}: {error}") from error
    return switches


def as_topology_conf(shown: str) -> str:
    """Return what Slurm shows as the lines of a topology.conf; empty when it shows no group of nodes.

    A switch above others is shown with all nodes below it, which a topology.conf does not name.
    """
    return "\n".join(_lines(shown))


def _lines(shown: str) -> Iterator[str]:
    for line in shown.splitlines():
        found = _GROUP.match(line)
        if found is None:
            continue
        values = dict(_VALUE.findall(line))
        kind, name = found.groups()
        if kind == "Switch" and "Switches" in values:
            values.pop("Nodes", None)
        elif "Nodes" not in values:
            continue
        if kind != "Switch":
            values.pop("LinkSpeed", None)
        yield " ".join([f"SwitchName={name}", *(f"{key}={value}" for key, value in values.items())])


def topology_text(path: Path, read: ReadFile) -> str:
    """Return the text of the file and of the files that it includes. Raises ConfigurationError."""

    def readable(wanted: Path) -> str:
        try:
            return read(wanted)
        except FileNotFoundError as error:
            if wanted != path:
                raise
            raise ConfigurationError(
                f"{path}: no such file; name a topology.conf of this machine with --topology-conf"
            ) from error

    return "\n".join(read_slurm_conf(path, readable).texts.values())
