"""The tree of switches, as Slurm reads it from topology.conf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.errors import ConfigurationError, SlurmReplyError
from controller.slurm.client import SlurmFacts
from controller.slurm.configuration.conf import read_slurm_conf

if TYPE_CHECKING:
    from simulator.cluster.topology.slurm import Switch

ReadFile = Callable[[Path], str]


def read_switches(facts: SlurmFacts, read: ReadFile = Path.read_text) -> list[Switch]:
    """Return the tree of switches that Slurm reads; empty when it reads none. Raises ConfigurationError, SlurmReplyError."""
    path = topology_path(facts)
    if path is None:
        return []
    # Imported here, where there is a tree, so that a start without one does not wait for the simulator.
    from simulator.cluster.topology.slurm import parse_switches, require_tree
    from simulator.errors import ClusterError

    try:
        switches = parse_switches(topology_text(path, read))
        require_tree(switches)
    except ClusterError as error:
        raise ConfigurationError(str(error.at(path))) from error
    return switches


def topology_path(facts: SlurmFacts) -> Path | None:
    """Return the topology.conf from which this Slurm reads its switches; None when it uses no tree of switches."""
    if topology_plugin(facts) != "topology/tree":
        return None
    conf = facts.settings.get("SLURM_CONF", "")
    if not conf:
        raise SlurmReplyError("scontrol show config does not show SLURM_CONF; name the file with --topology-conf")
    return Path(conf).parent / "topology.conf"


def topology_plugin(facts: SlurmFacts) -> str:
    """Return the plugin that gives Slurm its topology."""
    return facts.settings.get("TopologyPlugin", "topology/default")


def topology_text(path: Path, read: ReadFile) -> str:
    """Return the text of the file and of the files that it includes. Raises ConfigurationError."""

    def readable(wanted: Path) -> str:
        try:
            return read(wanted)
        except FileNotFoundError as error:
            if wanted != path:
                raise
            raise ConfigurationError(
                f"{path}: no such file; the switches are read from it, so run this where it is, or name it with --topology-conf"
            ) from error

    return "\n".join(read_slurm_conf(path, readable).texts.values())
