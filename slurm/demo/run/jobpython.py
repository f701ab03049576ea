"""The Python of the demonstration's jobs: the one that runs this program, made visible to the users of the nodes.

A virtual environment often uses a Python in a home folder (/root/.pyenv, /root/.local), which other users may not enter. The
permissions of the machine stay as they are: the folders are mounted inside the nodes only (open_path.sh).
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slurm.minicluster.cluster import RunningCluster

_SCRIPT = Path(__file__).with_name("open_path.sh")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def user_environment() -> Mapping[str, str]:
    """Return the environment of an ordinary user who has activated the virtual environment."""
    return {"PATH": f"{Path(sys.prefix) / 'bin'}:{_SYSTEM_PATH}", "PYTHONDONTWRITEBYTECODE": "1"}


def open_to_users(cluster: RunningCluster, nodes: Sequence[str] | None = None) -> None:
    """Make the folders of this Python visible to every user of `nodes`; None for all nodes. Raises CommandError."""
    plans = closed_folders(python_folders())
    for node in cluster.node_names if nodes is None else nodes:
        for closed, folders in plans.items():
            cluster.run_on(node, "sh", str(_SCRIPT), str(closed), *map(str, folders))


def python_folders() -> tuple[Path, ...]:
    """Return the folders that this Python needs: its environment, its installation by each of its names, and this package."""
    executable = Path(sys.executable)
    # This package, too: the mini-cluster enters nodes by a script in it, and a mount hides everything in the covered folder.
    installations = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[2]]
    for _ in range(20):  # python -> python3 -> /usr/bin/python3.11
        if not executable.is_symlink():
            break
        executable = Path(os.path.normpath(executable.parent / executable.readlink()))
        installations.append(executable.parent.parent)
    return tuple(dict.fromkeys(installations))


def closed_folders(folders: Iterable[Path]) -> dict[Path, tuple[Path, ...]]:
    """Return the topmost ancestor that other users may not enter → the folders below it; reachable folders are left out."""
    closed: defaultdict[Path, list[Path]] = defaultdict(list)
    for folder in folders:
        barrier = next((parent for parent in reversed(folder.parents) if not _enterable(parent)), None)
        if barrier is not None and not any(folder.is_relative_to(other) for other in closed[barrier]):
            closed[barrier].append(folder)
    return {barrier: tuple(shown) for barrier, shown in closed.items()}


def _enterable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)
