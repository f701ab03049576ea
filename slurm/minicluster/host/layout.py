"""The files of a cluster: all of them lie below one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm.minicluster.host.network import CONTROLLER


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of a cluster are. Everything lies below one folder."""

    root: Path

    @staticmethod
    def of(directory: str) -> Layout:
        """The layout of a recorded cluster."""
        return Layout(Path(directory))

    @property
    def etc(self) -> Path:
        """slurm.conf and its companions."""
        return self.root / "etc"

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return self.root / "run"

    @property
    def log(self) -> Path:
        """Logs of all daemons."""
        return self.root / "log"

    @property
    def state(self) -> Path:
        """slurmctld's StateSaveLocation."""
        return self.root / "state"

    @property
    def spool(self) -> Path:
        """slurmd's spool folders, one per node."""
        return self.root / "spool"

    @property
    def devices(self) -> Path:
        """The fake GPUs."""
        return self.root / "dev"

    @property
    def munge(self) -> Path:
        """Key, log and seed of munged."""
        return self.root / "munge"

    @property
    def work(self) -> Path:
        """Open to every user: where commands run unless told otherwise, so that job output lands here."""
        return self.root / "work"

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """munged's socket."""
        return self.run / "munge.socket"

    @property
    def database(self) -> Path:
        """MariaDB's files and its socket, with accounting."""
        return self.root / "database"

    @property
    def database_socket(self) -> Path:
        """MariaDB's socket."""
        return self.database / "socket"

    @property
    def slurmdbd_conf(self) -> Path:
        """slurmdbd's configuration: it looks beside slurm.conf."""
        return self.etc / "slurmdbd.conf"

    def log_of(self, host: str) -> Path:
        """Log of a node's slurmd, or of slurmctld."""
        return self.log / ("slurmctld.log" if host == CONTROLLER else f"{host}.slurmd.log")
