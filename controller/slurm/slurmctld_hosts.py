"""The machines on which slurmctld runs, and the one whose slurmctld is active.

With several SlurmctldHost lines, the slurmctld of one machine is active, and the others stand by. The active one writes the time
and its own number into StateSaveLocation, which they share: at once when it takes over, and then every few seconds (seen on 22.05).
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.errors import ConfigurationError
from controller.slurm.configuration.conf import read_slurm_conf

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.slurm.configuration.conf import SlurmConf

_HEARTBEAT = struct.Struct(">QQ")
"""Time in seconds since the Unix epoch, and number of the active slurmctld: big-endian, 64 bits each."""
_DEFAULT_CONF = Path("/etc/slurm/slurm.conf")
_DEFAULT_STATE = "/var/spool"
DEFAULT_TIMEOUT_S = 120.0
"""Slurm's default of SlurmctldTimeout."""


@dataclass(frozen=True, slots=True)
class SlurmctldHosts:
    """The machines of SlurmctldHost. Invariant: at least two, and `own` is the number of one of them."""

    names: tuple[str, ...]
    """Host names in the order of slurm.conf: the primary comes first."""
    own: int
    """Number of this machine, from 0."""
    heartbeat: Path
    """File in which the active slurmctld writes its number."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """SlurmctldTimeout: after that long without a heartbeat, another slurmctld takes over."""
    cluster: str = ""
    """ClusterName, the same on all of the machines."""

    def active(self) -> int | None:
        """Return the number of the machine whose slurmctld is active, or was the last to be; None if that cannot be read.

        May wait, because the file is on a disk that the machines share.
        """
        return parse_heartbeat(self._read(), len(self.names))

    def active_lately(self, now: float) -> int | None:
        """Return the number of the machine whose heartbeat is not older than `timeout_s`; None if there is none. May wait."""
        content = self._read()
        active = parse_heartbeat(content, len(self.names))
        if active is None or abs(now - _HEARTBEAT.unpack(content)[0]) > self.timeout_s:
            return None
        return active

    def _read(self) -> bytes:
        """Return the heartbeat; empty if it cannot be read."""
        try:
            descriptor = os.open(self.heartbeat, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):  # ValueError: a null byte in StateSaveLocation
            return b""
        try:
            return os.read(descriptor, _HEARTBEAT.size)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def are_led_here(self, active: int | None) -> bool:
        """Return whether Headway works on this machine while that slurmctld is active; None: on the primary's."""
        return self.own == (0 if active is None else active)


def parse_heartbeat(content: bytes, num_hosts: int) -> int | None:
    """Return the number of the active slurmctld in a heartbeat file; None for anything else."""
    if len(content) != _HEARTBEAT.size:
        return None
    _, number = _HEARTBEAT.unpack(content)
    return number if number < num_hosts else None


def read_slurmctld_hosts(settings: ControllerSettings) -> SlurmctldHosts | None:
    """Return the machines, if this controller has to stand by while another one's slurmctld is active; else None.

    Raises ConfigurationError if slurm.conf cannot be read, or does not name this machine and another one.
    """
    if not settings.stand_by:
        return None
    path = settings.slurm_conf or Path(os.environ.get("SLURM_CONF") or _DEFAULT_CONF)
    return hosts_in(read_slurm_conf(path), socket.gethostname())


def hosts_in(conf: SlurmConf, host: str) -> SlurmctldHosts:
    """Return the machines of a slurm.conf, seen from the machine with that host name. Raises ConfigurationError."""
    names = [
        setting.value.partition("(")[0].strip() for setting in conf.settings if setting.key.lower() == "slurmctldhost"
    ]
    if len(names) < 2:
        raise ConfigurationError(
            f"stand_by: {conf.path} has {len(names)} SlurmctldHost, so no other slurmctld can take over; add the backup's line to "
            "slurm.conf, or remove stand_by"
        )
    ours = [number for number, name in enumerate(names) if name in {host, host.partition(".")[0]}]
    if not ours:
        raise ConfigurationError(
            f"stand_by: this machine is {host}, and SlurmctldHost in {conf.path} names {', '.join(names)}; run the controller on "
            "one of these machines, or correct the names"
        )
    timeout = conf.value("SlurmctldTimeout") or ""
    return SlurmctldHosts(
        tuple(names),
        ours[0],
        Path(conf.value("StateSaveLocation") or _DEFAULT_STATE) / "heartbeat",
        float(timeout) if timeout.isascii() and timeout.isdigit() else DEFAULT_TIMEOUT_S,
        conf.value("ClusterName"),
    )
