"""A cluster that is up, and the ways to use it, break it and mend it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm.errors import BootError, CommandError, NotRunningError
from slurm.minicluster.host import cgroups, namespaces, network
from slurm.minicluster.host.accounting import Accounting
from slurm.minicluster.host.cgroups import Cgroup
from slurm.minicluster.host.configuration import Layout
from slurm.minicluster.host.network import CONTROLLER, Addresses, LinkBytes, NetworkNames
from slurm.minicluster.record import Record, RecordStore
from slurm.processes import Identity, ProcessRef, run, run_tied, wait_until

_BACKGROUND = Path(__file__).parent / "host" / "background.sh"
_SLURMCTLD_PORT = 6817
_DAEMON_TIMEOUT_S = 15.0
_CONTROLLER_DAEMONS = frozenset({"slurmctld", "slurmdbd"})


class RunningCluster:
    """What can be done with a cluster that is up, by its owner or by others.

    Invariant: hosts are found through the record only; a host that is started is in the record before it does anything.
    """

    def __init__(self, record: Record | None, store: RecordStore) -> None:
        self._record = record
        self._store = store

    # ---- what it is

    @property
    def name(self) -> str:
        """Its name on this machine."""
        return self._up.name

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return self._up.nodes

    @property
    def layout(self) -> Layout:
        """Where its files are."""
        return Layout(self.directory)

    @property
    def directory(self) -> Path:
        """Folder of its files; `work` below it is open to every user."""
        return Path(self._up.directory)

    @property
    def slurm_conf(self) -> Path:
        """Its slurm.conf."""
        return self.layout.slurm_conf

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's commands need in their environment, beside the usual."""
        return {"SLURM_CONF": str(self.slurm_conf)}

    @property
    def cgroup(self) -> Cgroup:
        """How jobs are contained: v1, v2 or none."""
        return self._up.cgroup

    @property
    def host_address(self) -> str:
        """Address of this machine as nodes and slurmctld see it."""
        return self._addresses.host

    @property
    def slurmctld_pid(self) -> int:
        """Pid of slurmctld as seen from here. Raises NotRunningError."""
        return self._daemon("slurmctld").pid

    def slurmd_pid(self, node: str) -> int:
        """Pid of a node's slurmd as seen from here. Raises NotRunningError."""
        return self._daemon(node).pid

    def link_bytes(self, node: str) -> LinkBytes:
        """What has gone over a node's NIC."""
        return self.links()[node]

    def links(self) -> dict[str, LinkBytes]:
        """What has gone over every node's NIC, in one reading."""
        return network.link_bytes(self._names)

    # ---- using it

    def run(
        self,
        *argv: str,
        user: str | None = None,
        timeout: float = 30.0,
        check: bool = True,
        cwd: Path | None = None,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this machine against the cluster, as that user, in the folder `work` or in `cwd`.

        Raises CommandError with its output when it fails (unless check is off) or takes longer than `timeout` seconds.
        """
        return run(
            *argv,
            stdin=stdin,
            timeout_s=timeout,
            check=check,
            env={**os.environ, **self.env, **(env or {})},
            cwd=cwd or self.layout.work,
            user=Identity.of(user) if user is not None else None,
        )

    def run_on(
        self, host: str, *argv: str, user: str | None = None, timeout: float = 30.0, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node's namespaces (or "ctl", slurmctld's), as a login there would, outside any job."""
        words = self._entering(host)
        if user is not None:
            words += ("setpriv", f"--reuid={user}", f"--regid={Identity.of(user).gid}", "--init-groups", "--")
        return run(*words, *argv, stdin=stdin, timeout_s=timeout, check=check, env={**os.environ, **self.env})

    def start_on(self, host: str, *argv: str, log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start a program on a host, that does not become a daemon by itself; it ends with the host, if not before."""
        environment = {**namespaces.daemon_environment(self.slurm_conf), **(env or {})}
        run_tied(*self._entering(host), "sh", str(_BACKGROUND), str(log), *argv, env=environment)

    def program_on(self, host: str, name: str) -> ProcessRef | None:
        """A program that was started by `start_on`; None if it does not run. `name`: 15 characters at most."""
        return namespaces.daemon(self._holder(host), name)

    def sacctmgr(self, *words: str) -> None:
        """Change the accounting: `sacctmgr("modify", "user", "alice", "set", "GrpTRES=gres/gpu=8")`. Raises CommandError."""
        self.run("sacctmgr", "-i", *words)

    def node_states(self) -> dict[str, str]:
        """Every node's state in Slurm's word: idle, mixed, allocated, down, ... Raises CommandError."""
        answer = run("sinfo", "-h", "-N", "-o", "%N %T", env={**os.environ, **self.env}, timeout_s=10)
        return dict(words for line in answer.stdout.splitlines() if len(words := line.split()) == 2)

    def wait_idle(self, timeout: float = 30.0) -> None:
        """Wait until every node is idle. Raises BootError that says which are not."""
        states: dict[str, str] = {}

        def all_idle() -> bool:
            with contextlib.suppress(CommandError):  # slurmctld is busy or away: it may come back in time
                states.update(self.node_states())
            return all(states.get(node) == "idle" for node in self.node_names)

        if not wait_until(all_idle, timeout, interval_s=0.05):
            busy = {node: states.get(node, "unknown") for node in self.node_names if states.get(node) != "idle"}
            log = namespaces.tail(self.layout.log_of(next(iter(busy), CONTROLLER)))
            raise BootError(f"not idle after {timeout:g} s: {busy}; {log}")

    # ---- breaking and mending it

    def kill_slurmctld(self) -> None:
        """SIGKILL slurmctld."""
        self._kill("slurmctld")

    def stop_slurmctld(self) -> None:
        """Have slurmctld write its state down and end, as `systemctl stop` does. Raises BootError when it does not."""
        ref = self._daemon("slurmctld")
        ref.send(signal.SIGTERM)
        if not ref.wait_gone(_DAEMON_TIMEOUT_S):
            raise BootError(
                f"slurmctld: process {ref.pid} does not end: {namespaces.tail(self.layout.log_of(CONTROLLER))}"
            )

    def start_slurmctld(self, timeout: float = _DAEMON_TIMEOUT_S) -> None:
        """Start slurmctld and wait until it answers. Raises BootError with its log."""
        self._start_daemon(CONTROLLER, "slurmctld", "-f", str(self.slurm_conf))

        init = self._init(CONTROLLER)

        def answers() -> bool:
            # Looked up, not tried: a client whose controller is away tries again for minutes, and a probe shows in the log.
            if network.listens(init, _SLURMCTLD_PORT):
                return self.run("scontrol", "ping", check=False, timeout=5).returncode == 0
            if self._find("slurmctld") is None and self._died_at_start("slurmctld"):
                raise BootError(f"slurmctld ended: {namespaces.tail(self.layout.log_of(CONTROLLER))}")
            return False

        if not wait_until(answers, timeout):
            raise BootError(f"slurmctld does not answer: {namespaces.tail(self.layout.log_of(CONTROLLER))}")

    def kill_slurmdbd(self) -> None:
        """SIGKILL slurmdbd; its database runs on."""
        self._kill("slurmdbd")

    def start_slurmdbd(self) -> None:
        """Start slurmdbd and wait until it answers. Raises BootError with its log."""
        self._accounting.start_slurmdbd()

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL a node's slurmd; its jobs run on."""
        self._kill(node)

    def start_slurmd(self, node: str) -> None:
        """Start a node's slurmd and wait until it runs. Raises BootError with its log."""
        self._start_slurmd_daemon(node)
        self._await_slurmd(node)

    def pause(self, daemon: str) -> None:
        """SIGSTOP "slurmctld", "slurmdbd", or a node's slurmd by the node's name: it hangs."""
        self._daemon(daemon).send(signal.SIGSTOP)

    def resume(self, daemon: str) -> None:
        """SIGCONT after `pause`."""
        self._daemon(daemon).send(signal.SIGCONT)

    def crash_node(self, node: str) -> None:
        """End everything on a node at once, as a power cut would. Its NIC stays plugged in; its disk (spool) stays."""
        namespaces.end_holder(self._holder(node))

    def boot_node(self, node: str, timeout: float = _DAEMON_TIMEOUT_S) -> None:
        """Boot a crashed node: its slurmd tells slurmctld that it has rebooted."""
        if namespaces.init_pid(self._holder(node)) is not None:
            raise BootError(f"node {node} is up; crash_node comes first")
        cgroups.remove(cgroups.host_cgroups(self.cgroup, self.name, node))  # a boot forgets them
        self._start_hosts((node,), time.monotonic() + timeout)
        self._start_slurmd_daemon(node, "-b")
        self._await_slurmd(node)

    # ---- inside

    @property
    def _up(self) -> Record:
        if self._record is None:
            raise NotRunningError("this mini-cluster is not up; call up() first")
        return self._record

    @property
    def _names(self) -> NetworkNames:
        return NetworkNames(self.name)

    @property
    def _addresses(self) -> Addresses:
        return Addresses(ipaddress.IPv4Network(self._up.subnet))

    def _holder(self, host: str) -> ProcessRef:
        try:
            return self._up.holders[host]
        except KeyError:
            raise NotRunningError(f"host {host}: no such host; there are {', '.join(self._up.holders)}") from None

    def _init(self, host: str) -> int:
        init = namespaces.init_pid(self._holder(host))
        if init is None:
            raise NotRunningError(f"host {host} is down; boot_node starts it")
        return init

    def _find(self, daemon: str) -> ProcessRef | None:
        if daemon in _CONTROLLER_DAEMONS:
            return namespaces.daemon(self._holder(CONTROLLER), daemon)
        return namespaces.daemon(self._holder(daemon), "slurmd")

    def _daemon(self, daemon: str) -> ProcessRef:
        ref = self._find(daemon)
        if ref is None:
            raise NotRunningError(f"{daemon}: its daemon does not run")
        return ref

    def _kill(self, daemon: str) -> None:
        ref = self._daemon(daemon)
        ref.send(signal.SIGKILL)
        if not ref.wait_gone(_DAEMON_TIMEOUT_S):
            raise BootError(f"{daemon}: process {ref.pid} does not end, even killed")

    @property
    def _accounting(self) -> Accounting:
        return Accounting(self.layout, self._holder(CONTROLLER), self.cgroup, self._up.slurm_user)

    def _entering(self, host: str) -> tuple[str, ...]:
        return namespaces.entering(self._init(host), self.cgroup)

    def _start_daemon(self, host: str, *argv: str) -> None:
        run_tied(*self._entering(host), *argv, env=namespaces.daemon_environment(self.slurm_conf))

    def _start_slurmd_daemon(self, node: str, *options: str) -> None:
        self._start_daemon(node, "slurmd", "-N", node, "-f", str(self.slurm_conf), *options)

    def _await_slurmd(self, node: str) -> None:
        if not wait_until(lambda: self._find(node) is not None, _DAEMON_TIMEOUT_S):
            raise BootError(f"slurmd on {node} did not start: {namespaces.tail(self.layout.log_of(node))}")

    def _died_at_start(self, daemon: str) -> bool:
        return not wait_until(lambda: self._find(daemon) is not None, 1.0)

    def _start_hosts(self, hosts: tuple[str, ...], deadline: float) -> None:
        waiting = [
            namespaces.start_holder(host, self._names.netns(host), self.layout.root, self.cgroup) for host in hosts
        ]
        try:
            self._note(holders=self._up.holders | {holder.host: holder.ref for holder in waiting})
            for holder in waiting:
                cgroups.enclose(holder.ref.pid, cgroups.host_cgroups(self.cgroup, self.name, holder.host))
                holder.proceed()
            for holder in waiting:
                holder.await_ready(deadline)
        finally:
            for holder in waiting:
                holder.close()

    def _note(self, **changes: Any) -> None:
        self._record = replace(self._up, **changes)
        self._store.write(self._record)
