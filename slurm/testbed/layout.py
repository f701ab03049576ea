"""Files of one installation of Headway beside a mini-cluster: paths, scripts for Slurm, and the settings of the controller."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.slurm.configuration import installed_files
from slurm.minicluster.cluster import RunningCluster
from slurm.minicluster.spec import ClusterSpec
from slurm.setup.files import shipped_job_side, shipped_sources
from slurm.setup.folders import make_folder
from slurm.setup.spank_build import PLUGIN_NAME

LUA, EVENT_HOOK, TASK_PROLOG = "job_submit.lua", "event.sh", "task_prolog.sh"
HOOKS = "hooks"
"""Folder of these scripts in that of the cluster."""


@dataclass
class Layout:
    """Paths of an installation: all of them lie below one folder."""

    folder: Path
    """Folder of everything; the user of slurmctld must be able to enter it (not so below pytest's folders)."""

    @property
    def runtime_dir(self) -> Path:
        """Folder of the lease, the wake pipe and the sockets."""
        return self.folder / "run"

    @property
    def lease(self) -> Path:
        """The lease of the controller."""
        return self.runtime_dir / "lease"

    @property
    def config(self) -> Path:
        """The controller.toml."""
        return self.folder / "controller.toml"

    @property
    def job_side(self) -> Path:
        """Folder from which jobs import headway_job."""
        return self.folder / "jobside"

    @property
    def job_socket(self) -> Path:
        """Socket of the agent of a node, as the node sees it."""
        return self.folder / "agent" / "job.sock"

    @property
    def agents_folder(self) -> Path:
        """Folder of the agents: one folder in it for each node."""
        return self.folder / "agents"

    @property
    def spank_plugin(self) -> Path:
        """The SPANK plugin as it was built; Slurm loads a copy in the folder of the cluster."""
        return self.folder / PLUGIN_NAME

    @property
    def plugstack(self) -> Path:
        """The plugstack.conf of the cluster, which Slurm's programs read at every start."""
        return self.folder / "plugstack.conf"

    @property
    def policy_socket(self) -> Path:
        """Socket of the policy server."""
        return self.runtime_dir / "policy.sock"

    @property
    def policy_address(self) -> str:
        """Address of the policy server."""
        return f"unix://{self.policy_socket}"

    def log_path(self, name: str) -> Path:
        """Return the file of the output of a process."""
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        """Return the output of a process so far."""
        path = self.log_path(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def scripts(self) -> Mapping[str, str]:
        """Return file name → text of the scripts for Slurm, which use the paths of this installation."""
        sources = shipped_sources(self.job_side, self.job_socket)
        texts = {LUA: sources.lua, EVENT_HOOK: sources.event_hook, TASK_PROLOG: sources.task_prolog}
        return {name: installed_files.with_runtime_dir(text, self.runtime_dir) for name, text in texts.items()}

    def with_hooks(self, spec: ClusterSpec, folder: str = HOOKS) -> ClusterSpec:
        """Return the specification with these scripts as plugin and hooks of Slurm, in that folder of the cluster.

        The installation's own folder may be below /run, where many machines let nothing be executed (noexec).
        """
        files = {f"{folder}/{name}": text for name, text in self.scripts().items()}
        hooks = spec.home / folder
        return replace(
            spec,
            added_files={**spec.added_files, **files},
            job_submit_lua=hooks / LUA,
            prolog_slurmctld=hooks / EVENT_HOOK,
            epilog_slurmctld=hooks / EVENT_HOOK,
            task_prolog=hooks / TASK_PROLOG,
        )

    def install_job_side(self) -> None:
        """Copy the folder of headway_job: users of the nodes may be unable to enter the original."""
        shutil.copytree(
            shipped_job_side(), self.job_side, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        )
        for path in (self.job_side, *self.job_side.rglob("*")):  # a checkout has the modes of its user's umask
            path.chmod(0o755 if path.is_dir() else 0o644)
        # Each node mounts a folder of its own there, so that the path is the same on all nodes, as on real machines.
        make_folder(self.job_socket.parent)

    def controller_settings(self, partitions: Sequence[str], metrics_address: str) -> dict[str, Any]:
        """Return keys of controller.toml: everything but Slurm and the agents."""
        return {
            "partitions": list(partitions),
            "runtime_dir": str(self.runtime_dir),
            "state_dir": str(self.folder / "state"),
            "policy_address": self.policy_address,
            "metrics_address": metrics_address,
        }


def keys_for_agents(cluster: RunningCluster, address: str) -> dict[str, Any]:
    """Return keys of controller.toml for a controller that accepts the cluster's agents at that address, with MUNGE."""
    return {"agents_address": address, "agents_munge": "required", "munge_socket": str(cluster.files.munge_socket)}
