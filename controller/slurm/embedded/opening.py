"""Opens the embedded Slurm by the controller's settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from controller.base.config import ControllerSettings
from controller.base.lease import read_lease
from controller.slurm.embedded.cluster import EmbeddedSlurm
from controller.slurm.embedded.description import ClusterDescription, PartitionDescription
from controller.slurm.embedded.loading import load_cluster
from controller.slurm.user_holds import HoldFolder


def open_embedded(settings: ControllerSettings) -> EmbeddedSlurm:
    """Return a cluster on the real clock, whose plugin reads the lease and writes into the wake pipe that the settings name.

    Raises ConfigurationError. Call `start` on it, inside the event loop, for a cluster that wakes the controller by itself.
    """
    if settings.embedded_cluster is not None:
        description = load_cluster(settings.embedded_cluster)
    else:
        description = ClusterDescription(
            partitions=tuple(PartitionDescription(name=name) for name in settings.partitions)
        )
    return EmbeddedSlurm(
        description,
        lease=lambda: read_lease(settings.lease_path),
        wake=pipe_writer(settings.wake_path),
        holds=HoldFolder(settings.holds_path),
    )


def pipe_writer(path: Path) -> Callable[[str], None]:
    """Return a function that writes lines into the wake pipe. It never blocks, and loses a line rather than fail: a wake-up only
    saves time."""

    def write(line: str) -> None:
        with suppress(OSError):
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)

    return write
