"""The Python that the demonstration's jobs run: this one, made visible to users of the nodes.

A virtual environment often stands on a Python below somebody's home (/root/.pyenv, /root/.local), which other users may not
enter. Nothing of the machine's permissions is changed: the folders are shown inside the nodes alone (open_path.sh).
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
    """What an ordinary user has in the environment after activating the virtual environment."""
    return {"PATH": f"{Path(sys.prefix) / 'bin'}:{_SYSTEM_PATH}", "PYTHONDONTWRITEBYTECODE": "1"}


def open_to_users(cluster: RunningCluster, nodes: Sequence[str] | None = None) -> None:
    """Show the folders of this Python to every user of every node, or of these. Raises CommandError."""
    plans = closed_folders(python_folders())
    for node in cluster.node_names if nodes is None else nodes:
        for closed, folders in plans.items():
            cluster.run_on(node, "sh", str(_SCRIPT), str(closed), *map(str, folders))


def python_folders() -> tuple[Path, ...]:
    """Folders that this Python needs: its environment, the installation that this stands on by every name it has, ours."""
    executable = Path(sys.executable)
    # Our own scripts beside them: the mini-cluster enters nodes by one of them, and a covered folder hides all that it holds.
    installations = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[2]]
    for _ in range(20):  # python -> python3 -> /usr/bin/python3.11
        if not executable.is_symlink():
            break
        executable = Path(os.path.normpath(executable.parent / executable.readlink()))
        installations.append(executable.parent.parent)
    return tuple(dict.fromkeys(installations))


def closed_folders(folders: Iterable[Path]) -> dict[Path, tuple[Path, ...]]:
    """The topmost ancestor that others may not enter → the folders below it; folders that all can reach are left out."""
    closed: defaultdict[Path, list[Path]] = defaultdict(list)
    for folder in folders:
        barrier = next((parent for parent in reversed(folder.parents) if not _enterable(parent)), None)
        if barrier is not None and not any(folder.is_relative_to(other) for other in closed[barrier]):
            closed[barrier].append(folder)
    return {barrier: tuple(shown) for barrier, shown in closed.items()}


def _enterable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)
