"""Clusters and installations whose owner was killed before it could remove them."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from slurm.errors import MiniClusterError
from slurm.minicluster import teardown
from slurm.minicluster.record import RecordStore
from slurm.processes import ProcessRef

RUN = Path("/run")
"""Folder in which installations have theirs."""


def remove_leftovers(purpose: str, parent: Path = RUN, store: RecordStore | None = None) -> None:
    """Take down clusters named PURPOSE-PID-N, and remove folders of installations with such a name, if process PID has ended.

    Nothing of a process that runs is touched. What cannot be removed stays: it must not keep the caller from its own work.
    """
    store = store or RecordStore()
    pattern = rf"{re.escape(purpose)}-(\d+)-\d+"
    for name in store.names():
        if not _owner_has_ended(pattern, name):
            continue
        with contextlib.suppress(MiniClusterError):  # perhaps another process takes it down now
            teardown.down(name, store)
    for folder in parent.glob(f"headway-{purpose}-*"):
        if _owner_has_ended(rf"headway-{pattern}-[a-z0-9_]+", folder.name) and not _has_mounts(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _owner_has_ended(pattern: str, name: str) -> bool:
    """Return whether a name fits the pattern, whose group is the pid of its owner, and the owner has ended."""
    match = re.fullmatch(pattern, name)
    if match is None:
        return False
    owner = ProcessRef.of(int(match[1]))
    return owner is None or not owner.alive()


def _has_mounts(folder: Path) -> bool:
    """Return whether something is mounted below a folder, which may be used elsewhere."""
    mounted = (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines())
    return any(Path(place).is_relative_to(folder) for place in mounted)
