"""One installation of Headway beside a mini-cluster: real configuration files and real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from slurm.minicluster.cluster import RunningCluster
from slurm.minicluster.spec import ClusterSpec
from slurm.processes import accepts
from slurm.setup.folders import make_folder
from slurm.setup.spank_build import Toolchain, build, find_toolchain
from slurm.testbed.agents import NodeAgents, controller_address
from slurm.testbed.layout import HOOKS, Layout, keys_for_agents
from slurm.testbed.programs import InstallationError, NextLease, as_user, program, tied_to_us, write_toml

if TYPE_CHECKING:
    from typer.testing import Result

STOP_S = 30.0
"""Longest time for a process to end by itself."""
START_S = 60.0
"""Longest time for a process to be ready; on a busy machine it takes much of it."""
_INTERRUPTED = 128 + signal.SIGINT
"""Exit status of a command of `headway` that Ctrl-C has ended."""


@dataclass
class Installation(Layout):
    """One installation in a folder of its own. Invariant: every process that it started has ended when the context ends."""

    partitions: tuple[str, ...] = ("dl",)
    settings: dict[str, Any] = field(default_factory=dict)
    """Keys of controller.toml in addition to the paths."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Processes by name: controller, policy, watchdog."""
    environment: dict[str, str] = field(default_factory=dict)
    with_agents: bool = False
    """True when the controller accepts node agents, with MUNGE, at its address in the network of the cluster."""
    agent_settings: dict[str, Any] = field(default_factory=dict)
    """Keys of every agent.toml in addition to addresses, names and paths."""
    controller_user: str = ""
    """User of the controller, such as SlurmUser, as in the unit of a real installation; it keeps root's access to files, because a
    checkout and its Python may be root's own. Empty: the user of this process."""
    with_spank: bool = False
    """True when the SPANK plugin is built and listed in the plugstack.conf of the cluster."""
    wrap: Sequence[str] = field(default_factory=tied_to_us)
    """Words before every command line. By default a process is killed together with the thread that has started it."""

    def __post_init__(self) -> None:
        """Describe the agents; `agents.start_all` starts them."""
        self.agents = NodeAgents(self.agents_folder, self.job_socket, self.agent_settings)

    @classmethod
    def prepare(cls, name: str, parent: Path = Path("/run"), **fields: Any) -> Self:
        """Create the folder. `cluster_spec` describes the cluster with plugin and hooks that use its runtime folder."""
        folder = Path(tempfile.mkdtemp(prefix=f"headway-{name}-", dir=parent))
        folder.chmod(0o755)
        made = cls(folder, **fields)
        make_folder(made.runtime_dir)
        if made.with_agents:
            made.install_job_side()
        if made.with_spank:
            made._build_spank()
        return made

    def _build_spank(self) -> None:
        tools = find_toolchain()
        if not isinstance(tools, Toolchain):
            raise InstallationError(f"the SPANK plugin cannot be built: {'; '.join(tools)}")
        build(tools, self.spank_plugin)

    def cluster_spec(self, **fields: Any) -> ClusterSpec:
        """Return the specification of a mini-cluster with plugins and hooks in place."""
        spec = self.with_hooks(ClusterSpec(**fields))
        return self._with_spank_plugin(spec) if self.with_spank else spec

    def _with_spank_plugin(self, spec: ClusterSpec) -> ClusterSpec:
        """Add the plugin to the cluster, and list it in a plugstack.conf that may change while the cluster is up."""
        name = f"{HOOKS}/{self.spank_plugin.name}"
        self.plugstack.write_text(f"optional {spec.home / name}\n")
        self.plugstack.chmod(0o644)
        return replace(
            spec,
            added_files={**spec.added_files, name: self.spank_plugin.read_bytes()},
            extra_conf=(*spec.extra_conf, f"PlugStackConfig={self.plugstack}"),
        )

    def configure(self, cluster: RunningCluster | None = None, **settings: Any) -> None:
        """Write controller.toml for that cluster; None for the embedded one."""
        self.settings.update(settings)
        values = self.controller_settings(self.partitions, metrics_address="127.0.0.1:0")
        if cluster is None:
            values["slurm_client"] = "embedded"
        else:
            values["slurm_conf"] = str(cluster.slurm_conf)
            self.environment.update(cluster.env)
        if cluster is not None and self.with_agents:
            values |= keys_for_agents(cluster, controller_address(cluster))
        values.update(self.settings)
        write_toml(self.config, values)

    def start_policy(self, name: str = "srtf") -> None:
        """Start the policy server, and wait until it listens."""
        self.policy_socket.unlink(missing_ok=True)
        self.start("policy", [*program("headway-policy"), "serve", "--policy", name, "--listen", self.policy_address])
        self.wait(lambda: accepts(self.policy_socket), "policy")

    def start_controller(self, timeout_s: float = START_S) -> None:
        """Start the controller, and wait for its first lease."""
        lease = NextLease(self.lease)
        words = [*program("headway-controller"), "run", "--config", str(self.config)]
        if self.controller_user:
            shutil.chown(self.runtime_dir, self.controller_user)
            words = [*as_user(self.controller_user), *words]
        self.start("controller", words)
        self.wait(lease.written, "controller", timeout_s)

    def wake(self) -> None:
        """Wake the controller, as a hook of slurmctld does when a job has ended."""
        # Opened without waiting: without a controller there is no reader, and that is an error.
        descriptor = os.open(self.runtime_dir / "wake-hooks", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, b"end\n")
        finally:
            os.close(descriptor)

    def start_watchdog(self, every_s: float = 1.0) -> None:
        """Start the watchdog in a loop, as its timer does."""
        command = [*program("headway-controller"), "watchdog", "--config", str(self.config), "--every", str(every_s)]
        self.start("watchdog", command)

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a process; its output goes to NAME.log in the folder."""
        with self.log_path(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.wrap, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **(env or {})},
                umask=0o022,
            )

    def wait(self, ready: Callable[[], bool], name: str, timeout_s: float = START_S) -> None:
        """Wait until `ready()`. Raises InstallationError with the end of the log when the process ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            ended = self.processes[name].poll()
            if ended is not None or time.monotonic() > deadline:
                what = f"ended with status {ended}" if ended is not None else f"was not ready after {timeout_s:g} s"
                raise InstallationError(f"the {name} {what}; its log:\n{self.log(name)[-2000:]}")
            time.sleep(0.02)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self.processes[name].send_signal(number)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """End a process, by SIGKILL when it does not end in time. Return its exit status."""
        process = self.processes.pop(name)
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def headway(self, *words: str, timeout_s: float = 60.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of `headway`, as operators do. `check`: raises InstallationError, with what it printed, when it fails."""
        done = subprocess.run(
            [*program("headway"), *words, "--config", str(self.config)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **self.environment},
        )
        if check and done.returncode:
            command = " ".join(("headway", *words))
            raise InstallationError(f"{command} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def ask(self, *words: str) -> Any:
        """Return the answer of a command of `headway` with --json. Raises InstallationError when there is none."""
        found = self.try_ask(*words)
        return json.loads(self.headway(*words, "--json").stdout) if found is None else found

    def try_ask(self, *words: str) -> Any | None:
        """Return the same answer, or None when the controller gives none."""
        done = self.headway_here(*words, "--json")
        return json.loads(done.stdout) if done.exit_code == 0 else None

    def headway_here(self, *words: str) -> Result:
        """Run a command of `headway` in this process: a new one needs some tenths of a second of CPU to start.

        The commands have time limits of their own.
        """
        from typer.testing import CliRunner

        from controller.cli.app import app

        done = CliRunner().invoke(app, [*words, "--config", str(self.config)])
        if done.exit_code == _INTERRUPTED:  # by a signal for this process
            raise KeyboardInterrupt
        return done

    def close(self) -> None:
        """End every process, the newest first, and remove the folder."""
        for name in reversed(list(self.processes)):
            self.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
