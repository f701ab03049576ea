"""Partitions of the settings that Slurm does not have: a misspelled name holds no job, and nothing else would show it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from controller.base.errors import ConfigurationError
from controller.slurm.model.cluster import SlurmSnapshot

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.slurm.client import SlurmClient

log = structlog.get_logger(__name__)


def unknown_partitions(wanted: Iterable[str], snapshot: SlurmSnapshot) -> tuple[str, ...]:
    """Return the partitions that Slurm does not have, in the order in which they are wanted."""
    known = {partition.name for partition in snapshot.partitions}
    return tuple(name for name in wanted if name not in known)


def names_of(snapshot: SlurmSnapshot) -> str:
    """Return the names of Slurm's partitions as a text."""
    return ", ".join(sorted(partition.name for partition in snapshot.partitions)) or "none"


class UnknownPartitions:
    """Logs partitions that Slurm does not have. Invariant: a line is written only when their set has changed."""

    def __init__(self) -> None:
        self._unknown: tuple[str, ...] = ()

    def note(self, wanted: Iterable[str], snapshot: SlurmSnapshot) -> None:
        """Compare the settings with the newest snapshot."""
        unknown = unknown_partitions(wanted, snapshot)
        if unknown == self._unknown:
            return
        self._unknown = unknown
        if unknown:
            log.warning(
                "partitions_not_found",
                partitions=unknown,
                problem=f"Slurm has no partition {', '.join(unknown)}, so no job is scheduled there; it has {names_of(snapshot)}. "
                "Correct partitions in controller.toml, then reload",
            )
        else:
            log.info("partitions_found")


def require_partitions(settings: ControllerSettings, client: SlurmClient) -> str:
    """Ask Slurm for the partitions of the settings. Return why they could not be checked; empty when Slurm has them all.

    Raises ConfigurationError that names those which it does not have.
    """
    from controller.base.errors import SlurmError

    try:
        snapshot = asyncio.run(client.snapshot())
    except SlurmError as error:
        return f"Slurm does not answer, so its partitions were not checked: {error}"
    unknown = unknown_partitions(settings.partitions, snapshot)
    if unknown:
        raise ConfigurationError(
            f"partitions: Slurm has no partition {', '.join(unknown)}, or does not show it to this user; it has "
            f"{names_of(snapshot)}"
        )
    return ""
