"""The files of a cluster: all of them lie below one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurm.minicluster.host.network import CONTROLLER

ACCOUNTING_DATABASE = "slurm_acct_db"
"""Name of the database of slurmdbd."""


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """Paths of a cluster's files."""

    root: Path

    @staticmethod
    def of(directory: str) -> ClusterFiles:
        """Return the files of a recorded cluster."""
        return ClusterFiles(Path(directory))

    @property
    def etc(self) -> Path:
        """Folder of slurm.conf and the other configuration files."""
        return self.root / "etc"

    @property
    def run(self) -> Path:
        """Folder of sockets and pid files."""
        return self.root / "run"

    @property
    def log(self) -> Path:
        """Folder of the logs of all daemons."""
        return self.root / "log"

    @property
    def state(self) -> Path:
        """StateSaveLocation of slurmctld."""
        return self.root / "state"

    @property
    def spool(self) -> Path:
        """Parent of the spool folders of the slurmds, one per node."""
        return self.root / "spool"

    @property
    def devices(self) -> Path:
        """Folder of the fake GPUs."""
        return self.root / "dev"

    @property
    def munge(self) -> Path:
        """Folder of the key, log and seed of munged."""
        return self.root / "munge"

    @property
    def work(self) -> Path:
        """Folder to which every user may write: the default working directory of commands, and so of the output of jobs."""
        return self.root / "work"

    @property
    def headway(self) -> Path:
        """Folder of Headway, where it runs on the cluster."""
        return self.root / "headway"

    @property
    def slurm_conf(self) -> Path:
        """The slurm.conf, to which SLURM_CONF is set."""
        return self.etc / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Socket of munged."""
        return self.run / "munge.socket"

    @property
    def database(self) -> Path:
        """Folder of the files and the socket of MariaDB, with accounting."""
        return self.root / "database"

    @property
    def database_socket(self) -> Path:
        """Socket of MariaDB."""
        return self.database / "socket"

    @property
    def slurmdbd_conf(self) -> Path:
        """Configuration of slurmdbd, which it expects beside slurm.conf."""
        return self.etc / "slurmdbd.conf"

    def log_of(self, host: str) -> Path:
        """Return the log of the slurmd of a node, or of slurmctld."""
        return self.log / ("slurmctld.log" if host == CONTROLLER else f"{host}.slurmd.log")
