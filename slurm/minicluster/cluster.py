"""A real Slurm cluster on one machine: slurmctld and some nodes, each a host of its own."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from slurm.errors import AlreadyRunningError, BootError, CommandError, MiniClusterError, NotRunningError
from slurm.minicluster import boot, teardown
from slurm.minicluster.handle import RunningCluster
from slurm.minicluster.host import network
from slurm.minicluster.host.configuration import cluster_name
from slurm.minicluster.host.network import CONTROLLER, LinkBytes
from slurm.minicluster.hosts import Hosts
from slurm.minicluster.record import NameLock, RecordStore
from slurm.minicluster.spec import ClusterSpec, PartitionSpec
from slurm.signals import signals_deferred

__all__ = [
    "AlreadyRunningError",
    "BootError",
    "ClusterSpec",
    "CommandError",
    "LinkBytes",
    "MiniCluster",
    "MiniClusterError",
    "NotRunningError",
    "PartitionSpec",
    "RunningCluster",
]


class MiniCluster(RunningCluster):
    """A cluster and its owner.

    Invariant: from `up` to `down` (or `detach`) this object holds the lock of the name, and everything of the cluster is in its
    record: after a crash of the owner, the next `up` or `down` of that name removes it all.
    """

    def __init__(self, spec: ClusterSpec, store: RecordStore | None = None) -> None:
        super().__init__(None)
        self.spec = spec
        self._store = store or RecordStore()
        self._lock: NameLock | None = None

    @staticmethod
    def attach(name: str, store: RecordStore | None = None) -> RunningCluster:
        """Return a cluster that another process has booted; it stays up when the caller ends. Raises NotRunningError."""
        store = store or RecordStore()
        record = store.read(name)
        if record is None or record.phase != "up":
            raise NotRunningError(f"mini-cluster {name}: not up; `headway-minicluster status` lists those that are")
        return RunningCluster(Hosts(record, store))

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def name(self) -> str:
        """Name of the cluster on this machine."""
        return self.spec.name

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return self.spec.node_names

    @property
    def directory(self) -> Path:
        """Folder of the cluster's files; every user may write to `work` in it."""
        return self.spec.home

    def up(self) -> None:
        """Boot, and return when every node is idle. After a failure or an interrupt nothing is left.

        Raises MiniClusterError.
        """
        boot.require_prerequisites(self.spec)
        if self._lock is not None:
            raise AlreadyRunningError(f"mini-cluster {self.name}: this object has it up already; call down() first")
        try:
            self._lock = self._store.lock(self.name)
            self._clear_earlier()
            self._boot()
        except BaseException as error:  # also KeyboardInterrupt and SystemExit
            self.down()
            if isinstance(error, OSError):  # such as a full disk: a fault of the machine, which is no bug
                raise BootError(f"mini-cluster {self.name}: {error}; mend this, and boot again") from error
            raise

    def down(self) -> None:
        """Remove everything; do nothing when this object owns no cluster. SIGINT and SIGTERM take effect afterwards."""
        if self._lock is None:
            return
        with signals_deferred():
            record = self._store.read(self.name) or (self._found.record if self._found is not None else None)
            if record is not None:
                teardown.take_down(record, self._store)
            self._found = None
            self._lock.release(remove=True)
            self._lock = None
            self._store.tidy()

    def detach(self) -> None:
        """Leave the cluster running without an owner, until it is taken down by name."""
        if self._lock is None:
            raise NotRunningError(f"mini-cluster {self.name}: not owned by this object")
        self._hosts.note(detached=True)
        self._lock.release(remove=False)
        self._lock = None

    def _clear_earlier(self) -> None:
        earlier = self._store.read(self.name)
        if earlier is None:
            return
        if earlier.detached and earlier.has_running_host():
            self._release_only()
            raise AlreadyRunningError(
                f"mini-cluster {self.name}: already up, in {earlier.directory}; "
                f"`headway-minicluster down --name {self.name}` takes it down"
            )
        teardown.take_down(earlier, self._store)

    def _release_only(self) -> None:
        assert self._lock is not None, "called by up, which has taken it"
        self._lock.release(remove=False)
        self._lock = None

    def _boot(self) -> None:
        deadline = time.monotonic() + self.spec.boot_timeout_s
        with self._store.machine_lock():
            others = [record for record in self._store.records() if record.name != self.name]
            hosts = self._found = Hosts(boot.plan(self.spec, others), self._store)
            self._store.write(hosts.record)
            network.build(self.spec, hosts.names, hosts.addresses)
        boot.write_files(self.spec, hosts.record)
        hosts.start((CONTROLLER, *self.node_names), deadline)
        boot.start_munged(hosts.holder(CONTROLLER), hosts.files, hosts.record.cgroup)
        if self.spec.accounting:
            hosts.accounting.boot(cluster_name(self.spec))
        self.start_slurmctld()
        for node in self.node_names:
            hosts.start_slurmd(node)
        for node in self.node_names:
            hosts.await_slurmd(node)
        self.wait_idle(max(1.0, deadline - time.monotonic()))
        hosts.note(phase="up")
