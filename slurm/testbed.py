"""Headway on a mini-cluster: real configuration files, real processes. The demo, the benchmarks and the tests stand on it.

with Installation.prepare("demo") as headway, MiniCluster(headway.cluster_spec(nodes=4)) as cluster:
    headway.configure(cluster)
    headway.start_policy("srtf")
    headway.start_controller()

With `prepare("demo", with_agents=True)` the controller waits for node agents, and `headway.start_agents(cluster)` starts one in
every node, as that machine's init would. With `with_spank=True` the cluster's sbatch, salloc and srun have Headway's options.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller.base.lease import is_stale, read_lease
from controller.slurm.configuration import installed_files
from slurm.minicluster.cluster import RunningCluster
from slurm.minicluster.spec import ClusterSpec
from slurm.processes import wait_until
from slurm.setup.files import shipped_job_side, shipped_sources
from slurm.setup.spank_build import PLUGIN_NAME, Toolchain, build, find_toolchain

STOP_S = 10.0
"""How long a process may take to end by itself."""
AGENTS_PORT = 9342
AGENT_START_S = 30.0
AGENT_CAPABILITIES = ("sys_ptrace", "dac_read_search")
"""Of root's: all that the unit leaves an agent."""
_AGENT = "headway-agent"


class InstallationError(Exception):
    """A process of Headway did not come up: the text has its last words."""


@dataclass
class Installation:
    """One installation in a folder of its own. Invariant: every process that it started has ended when the context ends."""

    folder: Path
    """Not below /tmp/... with mode 0700: slurmctld's user must be able to enter it."""
    partitions: tuple[str, ...] = ("dl",)
    settings: dict[str, Any] = field(default_factory=dict)
    """Keys of controller.toml besides the paths."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By name: controller, policy, watchdog."""
    environment: dict[str, str] = field(default_factory=dict)
    with_agents: bool = False
    """Whether the controller waits for node agents, with MUNGE, at its address in the cluster's network."""
    agent_settings: dict[str, Any] = field(default_factory=dict)
    """Keys of every agent.toml besides addresses, names and paths."""
    with_spank: bool = False
    """Whether the SPANK plugin is built, and in the cluster's plugstack.conf."""
    wrap: Sequence[str] = ()
    """Put before every command line, for example to tie a process to the life of its parent."""

    @classmethod
    def prepare(cls, name: str, parent: Path = Path("/run"), **fields: Any) -> Self:
        """Make the folder, with plugin and hooks that use its runtime folder."""
        folder = Path(tempfile.mkdtemp(prefix=f"headway-{name}-", dir=parent))
        folder.chmod(0o755)
        made = cls(folder, **fields)
        made.runtime_dir.mkdir(mode=0o755)
        sources = shipped_sources(made.job_side, made.job_socket)
        made._install("job_submit.lua", sources.lua, 0o644)
        made._install("event.sh", sources.event_hook, 0o755)
        made._install("task_prolog.sh", sources.task_prolog, 0o755)
        if made.with_agents:
            made._install_job_side()
        if made.with_spank:
            made._install_spank()
        return made

    def _install(self, name: str, text: str, mode: int) -> None:
        path = self.folder / name
        path.write_text(installed_files.with_runtime_dir(text, self.runtime_dir))
        path.chmod(mode)

    def _install_job_side(self) -> None:
        """A copy: users of the nodes may be unable to enter the folder that ours is in."""
        shutil.copytree(
            shipped_job_side(), self.job_side, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        )
        # A node's own folder is shown there inside the node, so that the path is the same on all, as on real machines.
        self.job_socket.parent.mkdir(mode=0o755)

    def _install_spank(self) -> None:
        tools = find_toolchain()
        if not isinstance(tools, Toolchain):
            raise InstallationError(f"the SPANK plugin cannot be built: {'; '.join(tools)}")
        build(tools, self.spank_plugin)
        self.plugstack.write_text(f"optional {self.spank_plugin}\n")
        self.plugstack.chmod(0o644)

    @property
    def runtime_dir(self) -> Path:
        """Lease, wake pipe and sockets."""
        return self.folder / "run"

    @property
    def config(self) -> Path:
        """controller.toml."""
        return self.folder / "controller.toml"

    @property
    def job_side(self) -> Path:
        """What jobs load."""
        return self.folder / "jobside"

    @property
    def job_socket(self) -> Path:
        """Where a node's agent listens, seen from the node."""
        return self.folder / "agent" / "job.sock"

    @property
    def spank_plugin(self) -> Path:
        """The SPANK plugin."""
        return self.folder / PLUGIN_NAME

    @property
    def plugstack(self) -> Path:
        """The cluster's plugstack.conf: Slurm's programs read it at every start."""
        return self.folder / "plugstack.conf"

    @property
    def policy_address(self) -> str:
        """Where the policy server listens."""
        return f"unix://{self.runtime_dir}/policy.sock"

    def cluster_spec(self, **fields: Any) -> ClusterSpec:
        """A mini-cluster with plugins and hooks in place."""
        spec = ClusterSpec(**fields)
        return replace(
            spec,
            extra_conf=(*spec.extra_conf, *self._plugstack_lines()),
            job_submit_lua=self.folder / "job_submit.lua",
            prolog_slurmctld=self.folder / "event.sh",
            epilog_slurmctld=self.folder / "event.sh",
            task_prolog=self.folder / "task_prolog.sh",
        )

    def _plugstack_lines(self) -> tuple[str, ...]:
        return (f"PlugStackConfig={self.plugstack}",) if self.with_spank else ()

    def configure(self, cluster: RunningCluster | None = None, **settings: Any) -> None:
        """Write controller.toml for that cluster (none: the embedded one)."""
        self.settings.update(settings)
        values: dict[str, Any] = {
            "partitions": list(self.partitions),
            "runtime_dir": str(self.runtime_dir),
            "state_dir": str(self.folder / "state"),
            "policy_address": self.policy_address,
            "metrics_address": "127.0.0.1:0",
        }
        if cluster is None:
            values["slurm_client"] = "embedded"
        else:
            values["slurm_conf"] = str(cluster.slurm_conf)
            self.environment.update(cluster.env)
        if cluster is not None and self.with_agents:
            values |= {"agents_address": _agents_address(cluster), "agents_munge": "required"}
            values["munge_socket"] = str(cluster.layout.munge_socket)
        values.update(self.settings)
        _write_toml(self.config, values)

    def start_policy(self, name: str = "srtf") -> None:
        """Start the policy server, and wait until it listens."""
        socket = self.runtime_dir / "policy.sock"
        socket.unlink(missing_ok=True)
        self.start("policy", [*program("headway-policy"), "serve", "--policy", name, "--listen", self.policy_address])
        self.wait(socket.exists, "policy")

    def start_controller(self, timeout_s: float = 30.0) -> None:
        """Start the controller, and wait for its first lease."""
        path = self.runtime_dir / "lease"
        # One that was stopped in this very second may have left a lease of the same time.
        before = _written_ns(path)
        self.start("controller", [*program("headway-controller"), "run", "--config", str(self.config)])
        self.wait(
            lambda: _written_ns(path) != before and not is_stale(read_lease(path), time.time()), "controller", timeout_s
        )

    def start_watchdog(self, every_s: float = 1.0) -> None:
        """Start the watchdog in a loop, as its timer would."""
        command = [*program("headway-controller"), "watchdog", "--config", str(self.config), "--every", str(every_s)]
        self.start("watchdog", command)

    def start_agents(self, cluster: RunningCluster, nodes: Sequence[str] | None = None) -> None:
        """Start an agent in every node, or in these that were booted again, and wait until jobs can reach each.

        Raises InstallationError.
        """
        nodes = cluster.node_names if nodes is None else nodes
        for node in nodes:
            self._give_agent_a_folder(cluster, node)
            self.configure_agent(cluster, node)
            self.start_agent(cluster, node, wait=False)
        for node in nodes:
            self._await_agent(cluster, node)

    def start_agent(self, cluster: RunningCluster, node: str, *, wait: bool = True) -> None:
        """Start a node's agent, which `start_agents` has done before. Raises InstallationError."""
        bounds = f"--bounding-set=-all,{','.join(f'+{name}' for name in AGENT_CAPABILITIES)}"
        as_its_unit = ("setpriv", bounds, "--inh-caps=-all", "--no-new-privs", "--")
        argv = (*as_its_unit, *program(_AGENT), "run", "--config", str(self._agent_folder(node) / "agent.toml"))
        cluster.start_on(node, *argv, log=self._agent_folder(node) / "agent.log")
        if wait:
            self._await_agent(cluster, node)

    def stop_agent(self, cluster: RunningCluster, node: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a node's agent. Raises InstallationError when it does not go."""
        agent = cluster.program_on(node, _AGENT)
        if agent is not None and agent.send(number) and not agent.wait_gone(STOP_S):
            raise InstallationError(f"the agent of {node} does not end; it said:\n{self.agent_log(node)[-2000:]}")

    def agent_log(self, node: str) -> str:
        """What a node's agent has said so far."""
        path = self._agent_folder(node) / "agent.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _agent_folder(self, node: str) -> Path:
        return self.folder / "agents" / node

    def _give_agent_a_folder(self, cluster: RunningCluster, node: str) -> None:
        folder = self._agent_folder(node) / "run"
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        cluster.run_on(node, "mount", "--bind", str(folder), str(self.job_socket.parent))

    def configure_agent(self, cluster: RunningCluster, node: str) -> None:
        """Write a node's agent.toml, from `agent_settings`."""
        values = {
            "controller_address": _agents_address(cluster),
            "node_name": node,
            "munge": "required",
            "munge_socket": str(cluster.layout.munge_socket),
            "controller_uid": os.getuid(),
            "job_socket": str(self.job_socket),
        }
        _write_toml(self._agent_folder(node) / "agent.toml", values | self.agent_settings)

    def _await_agent(self, cluster: RunningCluster, node: str) -> None:
        def listens() -> bool:
            agent = cluster.program_on(node, _AGENT)
            return agent is not None and _listens(agent.pid, self.job_socket)

        if not wait_until(listens, AGENT_START_S):
            raise InstallationError(f"the agent of {node} did not come up; it said:\n{self.agent_log(node)[-2000:]}")

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a process; what it says goes to NAME.log in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.wrap, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **(env or {})},
            )

    def wait(self, ready: Callable[[], bool], name: str, timeout_s: float = 30.0) -> None:
        """Until `ready`. Raises InstallationError with the end of the process's log when it ends, or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            ended = self.processes[name].poll()
            if ended is not None or time.monotonic() > deadline:
                what = f"ended with status {ended}" if ended is not None else f"was not ready after {timeout_s:g} s"
                raise InstallationError(f"the {name} {what}; it said:\n{self.log(name)[-2000:]}")
            time.sleep(0.02)

    def log(self, name: str) -> str:
        """What a process has said so far."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self.processes[name].send_signal(number)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """End a process, by force when it does not go by itself; its exit status."""
        process = self.processes.pop(name)
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def headway(self, *words: str, timeout_s: float = 30.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the operators' command line."""
        return subprocess.run(
            [*program("headway"), *words, "--config", str(self.config)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=check,
            env={**os.environ, **self.environment},
        )

    def ask(self, *words: str) -> Any:
        """The same, with --json, and its answer."""
        return json.loads(self.headway(*words, "--json").stdout)

    def close(self) -> None:
        """End every process, newest first, and remove the folder."""
        for name in reversed(list(self.processes)):
            self.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _agents_address(cluster: RunningCluster) -> str:
    return f"{cluster.host_address}:{AGENTS_PORT}"


def _write_toml(path: Path, values: Mapping[str, Any]) -> None:
    # TOML and JSON write strings, numbers, booleans and lists of them alike.
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


def _written_ns(path: Path) -> int:
    """When the file was written; -1 while there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _listens(pid: int, path: Path) -> bool:
    """Whether that socket is open in the network namespace of the process: one that a dead agent left behind is not."""
    with suppress(OSError):  # it has ended
        return any(line.endswith(f" {path}") for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines())
    return False


def program(name: str) -> list[str]:
    """Command line of one of our programs, from the environment that this one runs in."""
    return [str(Path(sys.executable).with_name(name))]
