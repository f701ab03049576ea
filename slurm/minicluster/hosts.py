"""The hosts of a cluster that is up, and the daemons that run on them."""

from __future__ import annotations

import ipaddress
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm.errors import BootError, NotRunningError
from slurm.minicluster.host import cgroups, namespaces
from slurm.minicluster.host.accounting import Accounting
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.host.network import CONTROLLER, Addresses, NetworkNames
from slurm.minicluster.record import Record, RecordStore
from slurm.processes import ProcessRef, run_tied, wait_until

DAEMON_TIMEOUT_S = 60.0
"""Longest time for a daemon to start or to end; a busy machine needs much of it."""
_CONTROLLER_DAEMONS = frozenset({"slurmctld", "slurmdbd"})


class Hosts:
    """The hosts that one record names.

    Invariant: hosts are found through the record only, and a host that is started is in the record before it does anything.
    A daemon is named "slurmctld", "slurmdbd", or by its node for a slurmd.
    """

    def __init__(self, record: Record, store: RecordStore) -> None:
        self.record = record
        self._store = store

    def note(self, **changes: Any) -> None:
        """Change fields of the record, here and on disk."""
        self.record = replace(self.record, **changes)
        self._store.write(self.record)

    @property
    def files(self) -> ClusterFiles:
        """The cluster's files."""
        return ClusterFiles(Path(self.record.directory))

    @property
    def names(self) -> NetworkNames:
        """Names of the cluster's network namespaces and links."""
        return NetworkNames(self.record.name)

    @property
    def addresses(self) -> Addresses:
        """Addresses in the cluster's subnet."""
        return Addresses(ipaddress.IPv4Network(self.record.subnet))

    @property
    def accounting(self) -> Accounting:
        """slurmdbd and its database."""
        return Accounting(self.files, self.holder(CONTROLLER), self.record.cgroup, self.record.slurm_user)

    # ---- hosts

    def holder(self, host: str) -> ProcessRef:
        """Return the process that holds a host's namespaces. Raises NotRunningError for a host that the cluster does not have."""
        try:
            return self.record.holders[host]
        except KeyError:
            raise NotRunningError(f"host {host}: no such host; there are {', '.join(self.record.holders)}") from None

    def init(self, host: str) -> int:
        """Return the pid of process 1 of a host, as seen from here. Raises NotRunningError when the host is down."""
        init = namespaces.init_pid(self.holder(host))
        if init is None:
            raise NotRunningError(f"host {host} is down; boot_node starts it")
        return init

    def entering(self, host: str) -> tuple[str, ...]:
        """Return the command words that run what follows on a host."""
        return namespaces.entering(self.init(host), self.record.cgroup)

    def start(self, hosts: tuple[str, ...], deadline: float) -> None:
        """Start hosts, and wait until their namespaces are set up. Raises BootError."""
        waiting = [
            namespaces.start_holder(host, self.names.netns(host), self.files.root, self.record.cgroup) for host in hosts
        ]
        try:
            self.note(holders=self.record.holders | {holder.host: holder.ref for holder in waiting})
            for holder in waiting:
                cgroups.enclose(holder.ref.pid, self.cgroups_of(holder.host))
                holder.proceed()
            for holder in waiting:
                holder.await_ready(deadline)
        finally:
            for holder in waiting:
                holder.close()

    def cgroups_of(self, host: str) -> list[Path]:
        """Return the cgroups of a host."""
        return cgroups.host_cgroups(self.record.cgroup, self.record.name, host)

    # ---- daemons

    def find(self, daemon: str) -> ProcessRef | None:
        """Return a daemon; None if it does not run."""
        if daemon in _CONTROLLER_DAEMONS:
            return namespaces.daemon(self.holder(CONTROLLER), daemon)
        return namespaces.daemon(self.holder(daemon), "slurmd")

    def daemon(self, daemon: str) -> ProcessRef:
        """Return a daemon that runs. Raises NotRunningError."""
        ref = self.find(daemon)
        if ref is None:
            raise NotRunningError(f"{daemon}: its daemon does not run")
        return ref

    def start_daemon(self, host: str, *argv: str) -> None:
        """Start a program that becomes a daemon by itself."""
        run_tied(*self.entering(host), *argv, env=namespaces.daemon_environment(self.files.slurm_conf))

    def start_slurmd(self, node: str, *options: str) -> None:
        """Start a node's slurmd, without waiting for it."""
        self.start_daemon(node, "slurmd", "-N", node, "-f", str(self.files.slurm_conf), *options)

    def await_slurmd(self, node: str) -> None:
        """Wait until a node's slurmd runs. Raises BootError with its log."""
        if not wait_until(lambda: self.find(node) is not None, DAEMON_TIMEOUT_S):
            raise BootError(f"slurmd on {node} did not start: {namespaces.tail(self.files.log_of(node))}")

    def has_died_at_start(self, daemon: str) -> bool:
        """Return whether a daemon that was just started has ended; it gets a second to fork."""
        return not wait_until(lambda: self.find(daemon) is not None, 1.0)

    def kill(self, daemon: str) -> None:
        """SIGKILL a daemon. Raises BootError when it does not end."""
        ref = self.daemon(daemon)
        ref.send(signal.SIGKILL)
        if not ref.wait_gone(DAEMON_TIMEOUT_S):
            raise BootError(f"{daemon}: process {ref.pid} does not end after SIGKILL")
