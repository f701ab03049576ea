"""A cluster that is up: commands on it, and ways to break and repair it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from slurm.errors import BootError, CommandError, NotRunningError
from slurm.minicluster.host import cgroups, namespaces, network
from slurm.minicluster.host.cgroups import Cgroup
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.host.network import CONTROLLER, LinkBytes
from slurm.minicluster.hosts import DAEMON_TIMEOUT_S, Hosts
from slurm.processes import Identity, ProcessRef, run, run_tied, wait_until

_BACKGROUND = Path(__file__).parent / "host" / "background.sh"
_SLURMCTLD_PORT = 6817


class RunningCluster:
    """A cluster that is up, for its owner and for others.

    Invariant: it keeps no state of its own: `Hosts` and Slurm know what the cluster is.
    """

    def __init__(self, hosts: Hosts | None) -> None:
        self._found = hosts

    # ---- its names and files

    @property
    def name(self) -> str:
        """Name of the cluster on this machine."""
        return self._hosts.record.name

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return self._hosts.record.nodes

    @property
    def files(self) -> ClusterFiles:
        """Paths of the cluster's files."""
        return ClusterFiles(self.directory)

    @property
    def directory(self) -> Path:
        """Folder of the cluster's files; every user may write to `work` in it."""
        return Path(self._hosts.record.directory)

    @property
    def slurm_conf(self) -> Path:
        """The slurm.conf of the cluster."""
        return self.files.slurm_conf

    @property
    def env(self) -> dict[str, str]:
        """Variables that Slurm's commands need in their environment."""
        return {"SLURM_CONF": str(self.slurm_conf)}

    @property
    def cgroup(self) -> Cgroup:
        """Version of the cgroups that contain jobs: v1, v2 or none."""
        return self._hosts.record.cgroup

    @property
    def host_address(self) -> str:
        """Address of this machine in the network of the cluster."""
        return self._hosts.addresses.host

    @property
    def controller_address(self) -> str:
        """Address of the host of slurmctld, "ctl"."""
        return self._hosts.addresses.controller

    @property
    def slurmctld_pid(self) -> int:
        """Pid of slurmctld as seen from here. Raises NotRunningError."""
        return self._hosts.daemon("slurmctld").pid

    def slurmd_pid(self, node: str) -> int:
        """Pid of a node's slurmd as seen from here. Raises NotRunningError."""
        return self._hosts.daemon(node).pid

    def link_bytes(self, node: str) -> LinkBytes:
        """Return the bytes that a node has sent and received."""
        return self.links()[node]

    def links(self) -> dict[str, LinkBytes]:
        """Return the bytes that each node has sent and received, all read at once."""
        return network.link_bytes(self._hosts.names)

    # ---- using it

    def run(
        self,
        *argv: str,
        user: str | None = None,
        timeout: float = 60.0,
        check: bool = True,
        cwd: Path | None = None,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm on this machine for this cluster, as that user, in the folder `work` or in `cwd`.

        Raises CommandError with its output when it fails (unless check is off) or takes longer than `timeout` seconds.
        """
        return run(
            *argv,
            stdin=stdin,
            timeout_s=timeout,
            check=check,
            env={**os.environ, **self.env, **(env or {})},
            cwd=cwd or self.files.work,
            user=Identity.of(user) if user is not None else None,
        )

    def run_on(
        self, host: str, *argv: str, user: str | None = None, timeout: float = 60.0, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node (or on "ctl", the host of slurmctld) as after a login, outside any job."""
        words = self.words_on(host, *argv, user=user)
        return run(*words, stdin=stdin, timeout_s=timeout, check=check, env=self.environment_on(user))

    def environment_on(self, user: str | None = None) -> dict[str, str]:
        """Return the environment of a command on a host: this process's, with the variables of Slurm and of that user's login."""
        login = {} if user is None else Identity.of(user).environment
        return {**os.environ, **self.env, **login}

    def words_on(self, host: str, *argv: str, user: str | None = None) -> tuple[str, ...]:
        """Return the command line that runs a command on a host, as that user. Raises NotRunningError."""
        words = self._hosts.entering(host)
        if user is not None:
            words += ("setpriv", f"--reuid={user}", f"--regid={Identity.of(user).gid}", "--init-groups", "--")
        return (*words, *argv)

    def start_on(self, host: str, *argv: str, log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start a program in the background of a host; it ends with the host, if not before."""
        environment = {**namespaces.daemon_environment(self.slurm_conf), **(env or {})}
        run_tied(*self._hosts.entering(host), "sh", str(_BACKGROUND), str(log), *argv, env=environment)

    def program_on(self, host: str, name: str, *words: str) -> ProcessRef | None:
        """Return a program that `start_on` has started, with these words among its arguments; None if it does not run."""
        return namespaces.started_program(self._hosts.holder(host), name, words)

    def sacctmgr(self, *words: str) -> None:
        """Change the accounting: `sacctmgr("modify", "user", "alice", "set", "GrpTRES=gres/gpu=8")`. Raises CommandError."""
        self.run("sacctmgr", "-i", *words)

    def node_states(self) -> dict[str, str]:
        """Return the state of each node as Slurm names it: idle, mixed, allocated, down, ... Raises CommandError."""
        answer = run("sinfo", "-h", "-N", "-o", "%N %T", env={**os.environ, **self.env}, timeout_s=60)
        return dict(words for line in answer.stdout.splitlines() if len(words := line.split()) == 2)

    def wait_idle(self, timeout: float = 60.0) -> None:
        """Wait until every node is idle. Raises BootError that names the others."""
        states: dict[str, str] = {}

        def all_idle() -> bool:
            with contextlib.suppress(CommandError):  # slurmctld may be busy or down for a moment
                states.update(self.node_states())
            return all(states.get(node) == "idle" for node in self.node_names)

        if not wait_until(all_idle, timeout, interval_s=0.05):
            busy = {node: states.get(node, "unknown") for node in self.node_names if states.get(node) != "idle"}
            log = namespaces.tail(self.files.log_of(next(iter(busy), CONTROLLER)))
            raise BootError(f"not idle after {timeout:g} s: {busy}; {log}")

    # ---- breaking and repairing it

    def kill_slurmctld(self) -> None:
        """SIGKILL slurmctld."""
        self._hosts.kill("slurmctld")

    def stop_slurmctld(self) -> None:
        """Let slurmctld save its state and end, as `systemctl stop` does. Raises BootError when it does not end."""
        self._stop("slurmctld", CONTROLLER)

    def _stop(self, daemon: str, host: str) -> None:
        ref = self._hosts.daemon(daemon)
        ref.send(signal.SIGTERM)
        if not ref.wait_gone(DAEMON_TIMEOUT_S):
            raise BootError(f"{daemon}: process {ref.pid} does not end: {namespaces.tail(self.files.log_of(host))}")

    def restart(self, daemon: str) -> None:
        """End a daemon as `systemctl restart` does, if it runs, and start it: "slurmctld", "slurmdbd", or a node's slurmd by its
        name. Jobs continue. Returns when it answers. Raises NotRunningError, BootError."""
        start = {"slurmctld": self.start_slurmctld, "slurmdbd": self.start_slurmdbd}
        if daemon not in start and daemon not in self.node_names:
            raise NotRunningError(f"{daemon}: give slurmctld, slurmdbd or one of {', '.join(self.node_names)}")
        if daemon == "slurmdbd" and self._hosts.find(daemon) is None:
            raise NotRunningError(
                "slurmdbd does not run: `headway-minicluster up --accounting` boots a cluster with it"
            )
        if self._hosts.find(daemon) is not None:
            self._stop(daemon, CONTROLLER if daemon in start else daemon)
        if daemon in start:
            start[daemon]()
        else:
            self.start_slurmd(daemon)

    def start_slurmctld(self, timeout: float = DAEMON_TIMEOUT_S) -> None:
        """Start slurmctld and wait until it answers. Raises BootError with its log."""
        self._hosts.start_daemon(CONTROLLER, "slurmctld", "-f", str(self.slurm_conf))

        init = self._hosts.init(CONTROLLER)

        def answers() -> bool:
            # Look in /proc first: a client without a slurmctld retries for minutes, and a connection shows in the log.
            if network.listens(init, _SLURMCTLD_PORT):
                with contextlib.suppress(CommandError):  # it is busy: the next probe may be in time
                    return self.run("scontrol", "ping", check=False, timeout=5).returncode == 0
                return False
            if self._hosts.find("slurmctld") is None and self._hosts.has_died_at_start("slurmctld"):
                raise BootError(f"slurmctld ended: {namespaces.tail(self.files.log_of(CONTROLLER))}")
            return False

        if not wait_until(answers, timeout):
            raise BootError(f"slurmctld does not answer: {namespaces.tail(self.files.log_of(CONTROLLER))}")

    def kill_slurmdbd(self) -> None:
        """SIGKILL slurmdbd; its database keeps running."""
        self._hosts.kill("slurmdbd")

    def start_slurmdbd(self) -> None:
        """Start slurmdbd and wait until it answers. Raises BootError with its log."""
        self._hosts.accounting.start_slurmdbd()

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL a node's slurmd; its jobs keep running."""
        self._hosts.kill(node)

    def start_slurmd(self, node: str) -> None:
        """Start a node's slurmd and wait until it runs. Raises BootError with its log."""
        self._hosts.start_slurmd(node)
        self._hosts.await_slurmd(node)

    def pause(self, daemon: str) -> None:
        """SIGSTOP "slurmctld", "slurmdbd", or the slurmd of the node with that name."""
        self._hosts.daemon(daemon).send(signal.SIGSTOP)

    def resume(self, daemon: str) -> None:
        """SIGCONT after `pause`."""
        self._hosts.daemon(daemon).send(signal.SIGCONT)

    def crash_node(self, node: str) -> None:
        """Kill everything on a node at once, as a power failure would. Its NIC and its disk (spool) stay."""
        namespaces.end_holder(self._hosts.holder(node))

    def boot_node(self, node: str, timeout: float = DAEMON_TIMEOUT_S) -> None:
        """Boot a crashed node; its slurmd reports the reboot to slurmctld."""
        if namespaces.init_pid(self._hosts.holder(node)) is not None:
            raise BootError(f"node {node} is up; crash_node comes first")
        cgroups.remove(self._hosts.cgroups_of(node))  # they do not survive a reboot
        self._hosts.start((node,), time.monotonic() + timeout)
        self._hosts.start_slurmd(node, "-b")
        self._hosts.await_slurmd(node)

    @property
    def _hosts(self) -> Hosts:
        if self._found is None:
            raise NotRunningError("this mini-cluster is not up; call up() first")
        return self._found
