"""A real Slurm cluster on one machine: slurmctld and some nodes, each a host of its own."""

from __future__ import annotations

import ipaddress
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slurm.minicluster import boot, namespaces, network, teardown
from slurm.minicluster.configuration import Layout
from slurm.minicluster.errors import AlreadyRunningError, BootError, CommandError, NotRunningError
from slurm.minicluster.network import CONTROLLER, Addresses, LinkBytes, NetworkNames
from slurm.minicluster.processes import ProcessRef, failure_text, run, wait_until
from slurm.minicluster.record import NameLock, Record, RecordStore
from slurm.minicluster.spec import ClusterSpec, PartitionSpec

__all__ = ["ClusterSpec", "MiniCluster", "PartitionSpec"]

_SLURMCTLD_PORT = 6817
_DAEMON_TIMEOUT_S = 15.0


class MiniCluster:
    """One cluster, and the ways to break it.

    Invariant: between `up` and `down` this object holds the name's lock, unless it was detached or attached; everything
    that exists of the cluster is in its record, so that the next `up` or `down` of that name finds it after a crash.
    """

    def __init__(self, spec: ClusterSpec, store: RecordStore | None = None) -> None:
        self.spec = spec
        self._store = store or RecordStore()
        self._lock: NameLock | None = None
        self._record: Record | None = None

    @classmethod
    def attach(cls, name: str, store: RecordStore | None = None) -> MiniCluster:
        """A cluster that runs already, without owning it. Raises NotRunningError."""
        store = store or RecordStore()
        record = store.read(name)
        if record is None or record.phase != "up":
            raise NotRunningError(f"mini-cluster {name}: not up; `headway-minicluster status` lists those that are")
        spec = ClusterSpec(
            name=name, nodes=len(record.nodes), gpus=record.gpus, rate=record.rate, directory=Path(record.directory)
        )
        cluster = cls(spec, store)
        cluster._record = record
        return cluster

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # ---- life

    def up(self) -> None:
        """Boot, and return when every node is idle. On any failure or interrupt, what was made is removed again."""
        boot.require_prerequisites(self.spec)
        self._lock = self._store.lock(self.spec.name)
        try:
            self._clear_earlier()
            self._boot()
        except BaseException:  # also KeyboardInterrupt: whatever happens, nothing stays behind
            self.down()
            raise

    def down(self) -> None:
        """Remove everything. Does nothing if there is nothing."""
        if self._lock is None:
            if self._record is not None:
                self._record = None
                teardown.down(self.spec.name, self._store)
            return
        if self._record is not None:
            teardown.take_down(self._store.read(self.spec.name) or self._record, self._store)
            self._record = None
        self._lock.release(remove=self._store.read(self.spec.name) is None)
        self._lock = None
        self._store.tidy()

    def detach(self) -> None:
        """Leave the cluster running without an owner, until somebody takes it down by name."""
        self._note(detached=True)
        assert self._lock is not None, "only an owner can detach"
        self._lock.release(remove=False)
        self._lock = None

    def _clear_earlier(self) -> None:
        earlier = self._store.read(self.spec.name)
        if earlier is None:
            return
        if earlier.detached and any(holder.alive() for holder in earlier.holders.values()):
            raise AlreadyRunningError(
                f"mini-cluster {self.spec.name}: already up, in {earlier.directory}; "
                f"`headway-minicluster down --name {self.spec.name}` takes it down"
            )
        teardown.take_down(earlier, self._store)

    def _boot(self) -> None:
        deadline = time.monotonic() + self.spec.boot_timeout_s
        with self._store.machine_lock():
            self._record = boot.plan(self.spec)
            self._store.write(self._record)
            network.build(self.spec, self._names, self._addresses)
        boot.write_files(self.spec, self._record)
        self._start_hosts((CONTROLLER, *self.node_names), deadline)
        boot.start_munged(self._holder(CONTROLLER), self.layout)
        self.start_slurmctld()
        for node in self.node_names:
            self._start_slurmd_daemon(node)
        for node in self.node_names:
            self._await_daemon(node, "slurmd")
        self.wait_idle(max(1.0, deadline - time.monotonic()))
        self._note(phase="up")

    def _start_hosts(self, hosts: tuple[str, ...], deadline: float) -> None:
        waiting = [namespaces.start_holder(host, self._names.netns(host), self.layout.root) for host in hosts]
        try:
            self._note(holders=self._up.holders | {holder.host: holder.ref for holder in waiting})
            for holder in waiting:
                holder.proceed()
            for holder in waiting:
                holder.await_ready(deadline)
        finally:
            for holder in waiting:
                holder.close()

    def _note(self, **changes: Any) -> None:
        self._record = replace(self._up, **changes)
        self._store.write(self._record)

    # ---- what it is

    @property
    def name(self) -> str:
        """Its name on this machine."""
        return self.spec.name

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return self.spec.node_names

    @property
    def layout(self) -> Layout:
        """Where its files are."""
        return Layout(self.spec.home)

    @property
    def directory(self) -> Path:
        """Folder of its files; `work` below it is open to every user."""
        return self.spec.home

    @property
    def slurm_conf(self) -> Path:
        """Its slurm.conf."""
        return self.layout.slurm_conf

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's commands need in their environment, beside the usual."""
        return {"SLURM_CONF": str(self.slurm_conf)}

    @property
    def cgroup(self) -> str:
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
        return self._run((), argv, user, timeout, check, cwd, stdin, env)

    def run_on(
        self, host: str, *argv: str, user: str | None = None, timeout: float = 30.0, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node's namespaces (or "ctl", slurmctld's), as a login there would, outside any job."""
        words = namespaces.entering(self._init(host))
        if user is not None:
            words += ("setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups", "--")
        return self._run(words, argv, None, timeout, check, None, stdin, None)

    def _run(
        self,
        prefix: tuple[str, ...],
        argv: tuple[str, ...],
        user: str | None,
        timeout: float,
        check: bool,
        cwd: Path | None,
        stdin: str,
        env: Mapping[str, str] | None,
    ) -> subprocess.CompletedProcess[str]:
        account = pwd.getpwnam(user) if user is not None else None
        try:
            done = subprocess.run(
                (*prefix, *argv),
                env={
                    **os.environ,
                    **({"HOME": account.pw_dir, "USER": account.pw_name} if account else {}),
                    **self.env,
                    **(env or {}),
                },
                cwd=cwd or self.layout.work,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                start_new_session=True,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=os.getgrouplist(account.pw_name, account.pw_gid) if account else None,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"{' '.join(argv)}: no answer in {timeout:g} s") from None
        if check and done.returncode != 0:
            raise CommandError(failure_text(argv, done))
        return done

    def wait_idle(self, timeout: float = 30.0) -> None:
        """Wait until every node is idle. Raises BootError that says which are not."""
        states: dict[str, str] = {}

        def all_idle() -> bool:
            answer = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False, timeout=10)
            states.update(
                (node, state) for node, _, state in (line.partition(" ") for line in answer.stdout.splitlines())
            )
            return all(states.get(node) == "idle" for node in self.node_names)

        if not wait_until(all_idle, timeout, interval_s=0.05):
            busy = {node: states.get(node, "unknown") for node in self.node_names if states.get(node) != "idle"}
            log = namespaces.tail(self.layout.log_of(next(iter(busy), CONTROLLER)))
            raise BootError(f"not idle after {timeout:g} s: {busy}; {log}")

    # ---- breaking and mending it

    def kill_slurmctld(self) -> None:
        """SIGKILL slurmctld."""
        self._kill("slurmctld")

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

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL a node's slurmd; its jobs run on."""
        self._kill(node)

    def start_slurmd(self, node: str) -> None:
        """Start a node's slurmd and wait until it runs. Raises BootError with its log."""
        self._start_slurmd_daemon(node)
        self._await_daemon(node, "slurmd")

    def pause(self, daemon: str) -> None:
        """SIGSTOP "slurmctld", or a node's slurmd by the node's name: it hangs."""
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
        self._start_hosts((node,), time.monotonic() + timeout)
        self._start_slurmd_daemon(node, "-b")
        self._await_daemon(node, "slurmd")

    # ---- inside

    @property
    def _up(self) -> Record:
        if self._record is None:
            raise NotRunningError(f"mini-cluster {self.spec.name}: not up; call up() first")
        return self._record

    @property
    def _names(self) -> NetworkNames:
        return NetworkNames(self.spec.name)

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
        if daemon == "slurmctld":
            return namespaces.daemon(self._holder(CONTROLLER), "slurmctld")
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

    def _start_daemon(self, host: str, *argv: str) -> None:
        environment = namespaces.daemon_environment(self.slurm_conf)
        run(*namespaces.entering(self._init(host)), *argv, env=environment)

    def _start_slurmd_daemon(self, node: str, *options: str) -> None:
        self._start_daemon(node, "slurmd", "-N", node, "-f", str(self.slurm_conf), *options)

    def _await_daemon(self, node: str, program: str) -> None:
        if not wait_until(lambda: self._find(node) is not None, _DAEMON_TIMEOUT_S):
            raise BootError(f"{program} on {node} did not start: {namespaces.tail(self.layout.log_of(node))}")

    def _died_at_start(self, daemon: str) -> bool:
        return not wait_until(lambda: self._find(daemon) is not None, 1.0)
