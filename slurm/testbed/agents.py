"""The node agents of an installation: one in every node of the mini-cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.minicluster.cluster import RunningCluster
from slurm.processes import wait_until
from slurm.setup.folders import make_folder
from slurm.testbed.programs import InstallationError, own_environment, program, write_toml

AGENTS_PORT = 9342
AGENT_CAPABILITIES = ("sys_ptrace", "dac_read_search")
"""The capabilities of root that the systemd unit leaves an agent."""
_START_S = 60.0
_STOP_S = 60.0
AGENT = "headway-agent"


@dataclass
class NodeAgents:
    """Starts, stops and configures the agents. Invariant: an agent ends with its node, if not before."""

    folder: Path
    """One folder per node: settings, log and socket of its agent."""
    job_socket: Path
    """The socket of a node's agent, as the node sees it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Keys of every agent.toml in addition to addresses, names and paths."""

    def start_all(self, cluster: RunningCluster, nodes: Sequence[str] | None = None) -> None:
        """Start an agent in every node, or in those `nodes` that were booted again, and wait until jobs can reach each.

        Raises InstallationError.
        """
        nodes = cluster.node_names if nodes is None else nodes
        for node in nodes:
            self._mount_folder(cluster, node)
            self.configure(cluster, node)
            self.start(cluster, node, wait=False)
        for node in nodes:
            self._await(cluster, node)

    def start(self, cluster: RunningCluster, node: str, *, wait: bool = True) -> None:
        """Start the agent of a node that `start_all` has prepared. Raises InstallationError."""
        bounds = f"--bounding-set=-all,{','.join(f'+{name}' for name in AGENT_CAPABILITIES)}"
        as_its_unit = ("setpriv", bounds, "--inh-caps=-all", "--no-new-privs", "--")
        argv = (*as_its_unit, *program(AGENT), "run", "--config", str(self.config(node)))
        cluster.start_on(node, *argv, log=self._folder_of(node) / "agent.log", env=own_environment())
        if wait:
            self._await(cluster, node)

    def stop(self, cluster: RunningCluster, node: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a node's agent. Raises InstallationError when it does not end."""
        agent = cluster.program_on(node, AGENT)
        if agent is not None and agent.send(number) and not agent.wait_gone(_STOP_S):
            raise InstallationError(f"the agent of {node} does not end; its log:\n{self.log(node)[-2000:]}")

    def log(self, node: str) -> str:
        """Return the log of a node's agent; empty before its first start."""
        path = self._folder_of(node) / "agent.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def config(self, node: str) -> Path:
        """Return the path of a node's agent.toml."""
        return self._folder_of(node) / "agent.toml"

    def configure(self, cluster: RunningCluster, node: str) -> None:
        """Write a node's agent.toml, from `settings`."""
        values = {
            "controller_address": controller_address(cluster),
            "node_name": node,
            "munge": "required",
            "munge_socket": str(cluster.files.munge_socket),
            "controller_uid": os.getuid(),
            "job_socket": str(self.job_socket),
        }
        write_toml(self.config(node), values | self.settings)

    def _folder_of(self, node: str) -> Path:
        return self.folder / node

    def _mount_folder(self, cluster: RunningCluster, node: str) -> None:
        folder = self._folder_of(node) / "run"
        make_folder(folder)
        cluster.run_on(node, "mount", "--bind", str(folder), str(self.job_socket.parent))

    def _await(self, cluster: RunningCluster, node: str) -> None:
        def listens() -> bool:
            agent = cluster.program_on(node, AGENT)
            return agent is not None and _listens(agent.pid, self.job_socket)

        if not wait_until(listens, _START_S):
            raise InstallationError(f"the agent of {node} did not come up; its log:\n{self.log(node)[-2000:]}")


def controller_address(cluster: RunningCluster) -> str:
    """Return the address at which the controller accepts agents."""
    return f"{cluster.host_address}:{AGENTS_PORT}"


def _listens(pid: int, path: Path) -> bool:
    """Return whether the socket is open in the network namespace of the process; the file of a dead agent does not count."""
    with suppress(OSError):  # it has ended
        # Names of other sockets may contain any byte.
        table = Path(f"/proc/{pid}/net/unix").read_bytes().split(b"\n")
        return any(line.endswith(b" " + os.fsencode(path)) for line in table)
    return False
