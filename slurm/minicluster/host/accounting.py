"""slurmdbd and its database on the host of slurmctld, for limits of associations and QOS.

Each cluster has a MariaDB of its own. It listens only on a Unix socket, in a folder that only Slurm's user can enter. It accepts
this user and root by the credentials of the socket, without a password. Both daemons end with their host.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.errors import BootError, NotRunningError, PrerequisiteError
from slurm.minicluster.host import namespaces, network
from slurm.minicluster.host.files import ACCOUNTING_DATABASE, ClusterFiles
from slurm.minicluster.host.network import CONTROLLER
from slurm.minicluster.spec import ACCOUNT
from slurm.processes import ProcessRef, run_tied, wait_until

_SLURMDBD_PORT = 6819
_TIMEOUT_S = 60.0
_SQL_FOLDERS = (Path("/usr/share/mariadb"), Path("/usr/share/mysql"))
_SQL_FILES = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")
_SQL_PREFIXES = ("mariadb_", "mysql_")
"""First words of these names: since MariaDB 11, and before."""
_SMALL = (
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-use-native-aio=0",  # the number of asynchronous requests on a machine is limited
    "--innodb-flush-log-at-trx-commit=0",  # the data need not survive a crash of the machine
    "--innodb-doublewrite=0",
    "--skip-log-bin",
    "--skip-name-resolve",
)


@dataclass(frozen=True, slots=True)
class Accounting:
    """slurmdbd and MariaDB of one cluster, on its host `ctl`."""

    files: ClusterFiles
    holder: ProcessRef
    """Process that holds the namespaces of the host."""
    cgroup: str
    slurm_user: str

    def boot(self, cluster: str) -> None:
        """Create the database, start both daemons, and add the cluster with one account. Raises MiniClusterError."""
        self._make_database()
        self._start_database()
        self.start_slurmdbd()
        self._sacctmgr("cluster", cluster)
        self._sacctmgr("account", ACCOUNT, f"Cluster={cluster}", "Description=mini-cluster", "Organization=headway")
        self._sacctmgr("user", "root", f"Account={ACCOUNT}", f"Cluster={cluster}")

    def start_slurmdbd(self) -> None:
        """Start slurmdbd and wait until it answers. Raises BootError with its log."""
        environment = {"MYSQL_UNIX_PORT": str(self.files.database_socket)}  # slurmdbd.conf has no setting for a socket
        self._start("slurmdbd", environment=environment)
        log = self.files.log / "slurmdbd.log"
        self._await("slurmdbd", lambda: network.listens(self._init, _SLURMDBD_PORT), log)

    def _make_database(self) -> None:
        """Create the server's own tables from its SQL files; the script that MariaDB has for this changes files of the system."""
        tables = "".join(path.read_text() for path in sql_files())
        self._start(*self._mariadbd("--bootstrap"), stdin=bootstrap_sql(self.slurm_user) + tables)

    def _start_database(self) -> None:
        log = self.files.log / "mariadbd.log"
        background = ("sh", str(Path(__file__).with_name("background.sh")), str(log))
        files = (f"--socket={self.files.database_socket}", f"--pid-file={self.files.database}/mariadbd.pid")
        self._start(*background, *self._mariadbd("--skip-networking", *files))
        self._await("mariadbd", lambda: _answers(self.files.database_socket), log)

    def _mariadbd(self, *options: str) -> Sequence[str]:
        # Hosts of other clusters have the same process numbers, which name temporary tables, and the same /tmp
        place = (f"--datadir={self.files.database}", f"--tmpdir={self.files.database}", f"--user={self.slurm_user}")
        return ("mariadbd", "--no-defaults", *options, *place, *_SMALL)

    def _sacctmgr(self, *words: str) -> None:
        self._start("sacctmgr", "-i", "add", *words)

    def _start(self, *argv: str, stdin: str = "", environment: dict[str, str] | None = None) -> None:
        variables = {**namespaces.daemon_environment(self.files.slurm_conf), **(environment or {})}
        entering = namespaces.entering(self._init, self.cgroup)
        run_tied(*entering, *argv, stdin=stdin, env=variables, timeout_s=_TIMEOUT_S)

    @property
    def _init(self) -> int:
        init = namespaces.init_pid(self.holder)
        if init is None:
            raise NotRunningError(f"host {CONTROLLER} is down")
        return init

    def _await(self, program: str, ready: Callable[[], bool], log: Path) -> None:
        def is_ready() -> bool:
            if ready():
                return True
            started = wait_until(lambda: namespaces.daemon(self.holder, program) is not None, 1.0)
            if not started and not ready():
                raise BootError(f"{program} ended: {namespaces.tail(log)}")
            return False

        if not wait_until(is_ready, _TIMEOUT_S):
            raise BootError(f"{program} does not answer after {_TIMEOUT_S:g} s: {namespaces.tail(log)}")


def bootstrap_sql(slurm_user: str) -> str:
    """Return the SQL before MariaDB's own files.

    It creates slurmdbd's database, too. Where that is missing, slurmdbd creates it after a failed connection, whose handle it uses
    again; on such a handle MariaDB's client library 11.8.9 accepts no result with a column, and slurmdbd ends.
    """
    databases = f"create database {ACCOUNTING_DATABASE};\ncreate database mysql;\n"
    return f"{databases}use mysql;\nset @auth_root_socket = '{slurm_user}';\n"


def sql_files(folders: Sequence[Path] = _SQL_FOLDERS) -> list[Path]:
    """Return the files that create MariaDB's own tables, in order. Raises PrerequisiteError."""
    for folder, prefix in itertools.product(folders, _SQL_PREFIXES):
        found = [folder / f"{prefix}{name}" for name in _SQL_FILES]
        if all(path.is_file() for path in found):
            return found
    raise PrerequisiteError(
        f"{' and '.join(map(str, folders))}: no mariadb_{_SQL_FILES[0]} or mysql_{_SQL_FILES[0]}, which MariaDB 10.4 or later "
        "brings; install the package mariadb-server-core"
    )


def _answers(path: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        return True
    return False
