"""Decide that the watchdog stands by, because another machine's slurmctld is active.

The machines are kept in a file beside the lease, so that a slurm.conf that cannot be read for a while does not hide the heartbeat.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from controller.slurm.slurmctld_hosts import SlurmctldHosts, read_slurmctld_hosts

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings

log = structlog.get_logger(__name__)

HOSTS_FILE = "slurmctld_hosts"
"""File in the runtime folder with the machines that were last read from slurm.conf."""


def stands_by(settings: ControllerSettings, now: float) -> bool:
    """Return whether another machine's slurmctld is active, so that the controller and the watchdog there look after the jobs.

    Where slurm.conf cannot be used, only a fresh heartbeat of another machine keeps this one from its work: an error must not
    keep jobs held. `now`: seconds since the Unix epoch.
    """
    path = settings.runtime_dir / HOSTS_FILE
    try:
        hosts = read_slurmctld_hosts(settings)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep jobs held
        known = _recall(path)
        if known is not None and known.active_lately(now) not in {None, known.own}:
            log.error("slurmctld_hosts_unknown", problem=str(error), effect="stands by: another slurmctld is active")
            return True
        log.error("slurmctld_hosts_unknown", problem=str(error), effect="this watchdog releases jobs")
        return False
    if hosts is None:
        return False
    _remember(path, hosts)
    return not hosts.are_led_here(hosts.active())


def _remember(path: Path, hosts: SlurmctldHosts) -> None:
    """Keep the machines. Without the folder, or with a full disk, they are not kept."""
    if _recall(path) == hosts:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        temporary.write_text(
            json.dumps([hosts.names, hosts.own, str(hosts.heartbeat), hosts.timeout_s]), encoding="ascii"
        )
        temporary.replace(path)


def _recall(path: Path) -> SlurmctldHosts | None:
    """Return the machines that were kept; None when there are none, or the file is damaged."""
    try:
        names, own, heartbeat, timeout_s = json.loads(path.read_text(encoding="ascii"))
        hosts = SlurmctldHosts(tuple(map(str, names)), int(own), Path(heartbeat), float(timeout_s))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return None
    return hosts if 0 <= hosts.own < len(hosts.names) else None
