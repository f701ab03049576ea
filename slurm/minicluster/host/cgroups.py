"""Cgroups of a cluster: each host has one, and sees nothing above it.

Measured with Slurm 22.05: v1 needs the hierarchies `freezer` and `devices`, no systemd. v2 needs `IgnoreSystemd=yes`, no
controller (devices are constrained by eBPF), and a machine without any v1 hierarchy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from slurm.errors import MiniClusterError, PrerequisiteError
from slurm.minicluster.spec import CgroupMode
from slurm.processes import wait_until

Cgroup = Literal["v1", "v2", "none"]
_V1_CONTROLLERS = ("freezer", "devices")
_REMOVE_TIMEOUT_S = 60.0


def decide(
    mode: CgroupMode, root: Path = Path("/sys/fs/cgroup"), own_cgroups: Path = Path("/proc/self/cgroup")
) -> Cgroup:
    """Return the version to use on this machine. Raises PrerequisiteError when v1 or v2 is requested but not available."""
    obstacles = {"v1": _v1_obstacle(root), "v2": _v2_obstacle(root, own_cgroups), "none": None}
    if mode == "auto":
        return "v1" if obstacles["v1"] is None else "v2" if obstacles["v2"] is None else "none"
    if (obstacle := obstacles[mode]) is not None:
        raise PrerequisiteError(f"cgroup {mode}: {obstacle}; use auto or none")
    return mode


def _v1_obstacle(root: Path) -> str | None:
    missing = [path for path in _v1_roots(root) if not (path / "tasks").exists()]
    if missing:
        return f"{missing[0]} is no v1 hierarchy"
    return _read_only(_v1_roots(root))


def _v2_obstacle(root: Path, own_cgroups: Path) -> str | None:
    if not (root / "cgroup.controllers").exists():
        return f"{root} is not a v2 hierarchy, and Slurm's v2 plugin refuses machines where v1 ones are mounted (hybrid mode)"
    # A container with only v2 on a host with both: slurmd reads the host's hierarchies here, and does not start.
    if any(not line.startswith("0::") for line in _lines(own_cgroups)):
        return f"{own_cgroups} has hierarchies of v1, and Slurm's v2 plugin refuses such machines (hybrid mode)"
    return _read_only([root])


def _read_only(folders: Iterable[Path]) -> str | None:
    return next((f"{folder} is not writable" for folder in folders if not os.access(folder, os.W_OK)), None)


def host_cgroups(cgroup: Cgroup, cluster: str, host: str, root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Return the cgroups of one host."""
    return [parent / host for parent in cluster_cgroups(cgroup, cluster, root)]


def cluster_cgroups(cgroup: Cgroup, cluster: str, root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Return the parent cgroups of all hosts of a cluster."""
    roots = {"v1": _v1_roots(root), "v2": [root], "none": []}[cgroup]
    return [parent / f"headway-{cluster}" for parent in roots]


def enclose(pid: int, folders: Iterable[Path]) -> None:
    """Put a process into these cgroups; missing ones are created."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(str(pid))


def thaw(folders: Iterable[Path]) -> None:
    """Let frozen processes in these cgroups and below go on; missing ones are left out.

    Slurm freezes the steps of a job that is suspended. A frozen process takes no SIGKILL in v1, so one that slurmstepd does not
    thaw any more would stay for ever.
    """
    for folder in folders:
        for state in [*folder.rglob("freezer.state")]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # its last process has just ended
                state.write_text("THAWED")


def freezer_of(pid: int, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> Path | None:
    """Return the v1 cgroup in which the process can be frozen; None: there is none, or the process has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in _lines(proc / str(pid) / "cgroup"):
            _, controllers, path = line.split(":", 2)
            if controllers == "freezer":
                return root / "freezer" / path.lstrip("/")
    return None


def _lines(cgroups: Path) -> list[str]:
    """Return the lines of /proc/PID/cgroup. Names of cgroups may contain any byte but a line break."""
    return [line for line in cgroups.read_text(errors="surrogateescape").split("\n") if line]


def remove(folders: Sequence[Path]) -> None:
    """Remove cgroups and everything below them, after the end of their processes. Raises MiniClusterError when one stays."""
    for folder in folders:
        if not wait_until(lambda folder=folder: _remove_tree(folder), _REMOVE_TIMEOUT_S):  # type: ignore[misc]
            raise MiniClusterError(
                f"{folder}: cannot be removed: a process is still in it (see its cgroup.procs files)"
            )


def _remove_tree(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        for child in folder.iterdir():
            if child.is_dir():
                _remove_tree(child)
        with contextlib.suppress(OSError):  # busy for a moment after its last process has ended
            folder.rmdir()
    return not folder.exists()


def _v1_roots(root: Path) -> list[Path]:
    return [root / controller for controller in _V1_CONTROLLERS]
