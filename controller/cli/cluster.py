"""`headway cluster`: reads Slurm directly, so that it also works while the controller is down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from controller.base.config import DEFAULT_PATH, ControllerSettings, load_settings
from controller.base.errors import ConfigurationError, HeadwayError, SlurmUnavailableError
from controller.cli.live_cluster import LiveCluster, live_cluster
from controller.slurm.select import command_line_client
from simulator.cluster.toml import cluster_table, cluster_toml


class UnknownClusterError(Exception):
    """The cluster cannot be read; with a text of one line, and the exit code."""

    def __init__(self, problem: str, exit_code: int) -> None:
        super().__init__(problem)
        self.exit_code = exit_code


def read(config: Path | None, topology_conf: Path | None) -> LiveCluster:
    """Return the managed cluster by these settings. Raises UnknownClusterError."""
    try:
        settings = load_settings(DEFAULT_PATH if config is None else config)
        if settings.slurm_client == "embedded":
            raise ConfigurationError(
                'slurm_client = "embedded": there is no Slurm to read; give headway-sim a cluster as NxG, such as 4x8'
            )
        return asyncio.run(_read(settings, topology_conf))
    except SlurmUnavailableError as error:
        raise UnknownClusterError(str(error), 3) from error
    except HeadwayError as error:
        raise UnknownClusterError(str(error), 1) from error


async def _read(settings: ControllerSettings, topology_conf: Path | None) -> LiveCluster:
    client = command_line_client(settings)
    facts = await client.facts()
    shown = await client.topology() if topology_conf is None else ""
    return live_cluster(facts, await client.node_lines(), settings.partitions, shown, topology_conf)


def as_text(found: LiveCluster) -> str:
    """Return a TOML file for `headway-sim run --cluster`."""
    return cluster_toml(found.cluster, found.notes)


def as_object(found: LiveCluster) -> dict[str, Any]:
    """Return the cluster as an object for JSON."""
    return {**cluster_table(found.cluster), "notes": list(found.notes)}
