"""Headway on a mini-cluster that stays up. Policy server, controller and watchdog run on the host of slurmctld, "ctl", as on a
cluster of machines, and agents run on the nodes. Everything ends with its host, and its files are in the cluster's folder.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

from slurm.errors import NotRunningError
from slurm.minicluster.cluster import RunningCluster
from slurm.processes import accepts, wait_until
from slurm.setup.folders import make_folder
from slurm.testbed.agents import AGENT, AGENTS_PORT, NodeAgents
from slurm.testbed.choice import Choice, layout_in, read_choice, write_choice
from slurm.testbed.layout import keys_for_agents
from slurm.testbed.programs import InstallationError, NextLease, own_environment, program, write_toml

HOST = "ctl"
"""The host of the services, which is that of slurmctld."""
AGENT_PREFIX = "agent@"
"""Before the name of a node: the agent of that node, as systemd writes instances of a unit."""
METRICS_PORT = 19341
WATCHDOG_EVERY_S = 5.0
START_S = 60.0
STOP_S = 30.0
_APPEARS_S = 1.0
_PROGRAMS = {
    "policy": ("headway-policy", "serve"),
    "controller": ("headway-controller", "run"),
    "watchdog": ("headway-controller", "watchdog"),
}
"""Service → its program and its command."""


class Services:
    """The services of one cluster. Invariant: it keeps no state: the cluster's folder and its processes tell everything."""

    def __init__(self, cluster: RunningCluster, choice: Choice) -> None:
        self.choice = choice
        self.layout = layout_in(cluster.directory)
        self._cluster = cluster
        self._agents_address = f"{cluster.controller_address}:{AGENTS_PORT}"
        agent_settings = {"controller_address": self._agents_address}
        self._agents = NodeAgents(self.layout.agents_folder, self.layout.job_socket, agent_settings)

    @staticmethod
    def find(cluster: RunningCluster) -> Services | None:
        """Return the services of a cluster that runs; None when it was booted without Headway. Raises InstallationError."""
        choice = read_choice(cluster.directory)
        return None if choice is None else Services(cluster, choice)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that `headway` needs to find this controller."""
        return {"HEADWAY_CONFIG": str(self.layout.config)}

    @property
    def metrics_address(self) -> str:
        """Address of the controller's metrics, which this machine can reach."""
        return f"{self._cluster.controller_address}:{METRICS_PORT}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all services: policy, controller, watchdog, and the agents."""
        agents = self._cluster.node_names if self.choice.agents else ()
        return (*_PROGRAMS, *(f"{AGENT_PREFIX}{node}" for node in agents))

    def facts(self) -> dict[str, Any]:
        """Return policy, paths, addresses and the pid of each service (None when it does not run), for JSON."""
        return {
            "policy": self.choice.policy,
            "config": str(self.layout.config),
            "folder": str(self.layout.folder),
            "metrics_address": self.metrics_address,
            "services": {name: self.pid(name) for name in self.names},
        }

    def start_all(self) -> None:
        """Write the settings and start everything. Raises InstallationError with the end of a log."""
        write_choice(self._cluster.directory, self.choice)
        make_folder(self.layout.runtime_dir)
        write_toml(self.layout.config, self._settings())
        if self.choice.agents:
            self.layout.install_job_side()
        for name in _PROGRAMS:
            self._start(name)
        if self.choice.agents:
            self._agents.start_all(self._cluster)

    def restart(self, name: str) -> None:
        """End one of `names`, if it runs, and start it with the settings of now. Raises InstallationError, NotRunningError."""
        node = name.removeprefix(AGENT_PREFIX)
        if node != name:
            self._agents.stop(self._cluster, node)
            self._agents.start(self._cluster, node)
            return
        self._stop(name)
        self._start(name)

    def pid(self, name: str) -> int | None:
        """Return the pid of a service as seen from here; None when it does not run."""
        node = name.removeprefix(AGENT_PREFIX)
        host, words = (HOST, _PROGRAMS[name]) if node == name else (node, (AGENT,))
        try:
            ref = self._cluster.program_on(host, *words)
        except NotRunningError:  # the host is down
            return None
        return None if ref is None else ref.pid

    def _settings(self) -> dict[str, object]:
        found = self.layout.controller_settings(("dl",), self.metrics_address)
        found["slurm_conf"] = str(self._cluster.slurm_conf)
        if self.choice.agents:
            found |= keys_for_agents(self._cluster, self._agents_address)
        return found

    def _stop(self, name: str) -> None:
        ref = self._cluster.program_on(HOST, *_PROGRAMS[name])
        if ref is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            ref.send(number)
            ref.send(signal.SIGCONT)
            if ref.wait_gone(STOP_S):
                return
        raise InstallationError(f"the {name}: process {ref.pid} does not end after SIGKILL")

    def _start(self, name: str) -> None:
        ready = self._readiness(name)
        argv = (*program(_PROGRAMS[name][0]), *self._arguments(name))
        environment = {**self._cluster.env, **own_environment()}
        self._cluster.start_on(HOST, *argv, log=self.layout.log_path(name), env=environment)
        became_ready = wait_until(lambda: self._has_ended(name) or ready(), START_S)
        ended = self._has_ended(name)
        if ended or not became_ready:
            what = "ended at its start" if ended else f"was not ready after {START_S:g} s"
            raise InstallationError(f"the {name} {what}; the end of {self.layout.log_path(name)}:\n{self._said(name)}")

    def _has_ended(self, name: str) -> bool:
        """Return whether a service does not run: /proc may lack a process for a moment while it becomes its program."""
        return not wait_until(lambda: self.pid(name) is not None, _APPEARS_S)

    def _arguments(self, name: str) -> Sequence[str]:
        if name == "policy":
            return ("serve", "--policy", self.choice.policy, "--listen", self.layout.policy_address)
        config = ("--config", str(self.layout.config))
        return ("run", *config) if name == "controller" else ("watchdog", *config, "--every", str(WATCHDOG_EVERY_S))

    def _readiness(self, name: str) -> Callable[[], bool]:
        if name == "policy":
            self.layout.policy_socket.unlink(missing_ok=True)
            return lambda: accepts(self.layout.policy_socket)
        if name == "controller":
            return NextLease(self.layout.lease).written
        return lambda: True

    def _said(self, name: str) -> str:
        return self.layout.log(name)[-2000:].strip() or "nothing"
