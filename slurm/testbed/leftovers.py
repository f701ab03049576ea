"""Clusters and installations whose owner was killed before it could remove them."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

from slurm.errors import AlreadyRunningError, MiniClusterError, NotRunningError
from slurm.minicluster import teardown
from slurm.minicluster.record import RecordStore
from slurm.processes import ProcessRef

log = logging.getLogger(__name__)
RUN = Path("/run")
"""Folder in which installations have theirs."""


def remove_leftovers(purpose: str, parent: Path = RUN, store: RecordStore | None = None) -> None:
    """Take down clusters named PURPOSE-PID-N, and remove folders of installations with such a name, if process PID has ended.

    Nothing of a process that runs is touched, and no cluster that was left up (detached), which may have such a name by
    chance. What cannot be removed is logged and stays: it must not keep the caller from its own work.
    """
    store = store or RecordStore()
    pattern = rf"({re.escape(purpose)}-(\d+)-\d+)"
    for name in store.names():
        if _of_ended_owner(pattern, name):
            _take_down(name, store)
    kept = store.names()
    for folder in parent.glob(f"headway-{purpose}-*"):
        cluster = _of_ended_owner(rf"headway-{pattern}-[a-z0-9_]+", folder.name)
        if cluster and cluster not in kept and not has_mounts(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _take_down(name: str, store: RecordStore) -> None:
    """Take down a cluster, unless it is detached or in use. Log what prevents it."""
    try:
        teardown.down(name, store, detached=False)
    except (AlreadyRunningError, NotRunningError):
        pass  # another process takes it down now, or has done so
    except (MiniClusterError, OSError) as error:
        log.warning("mini-cluster %s, which was left over: %s", name, error)


def _of_ended_owner(pattern: str, name: str) -> str:
    """Return the cluster in a name that fits the pattern, whose groups are the cluster and the pid of its owner.

    Empty when the name does not fit, or the owner has not ended.
    """
    match = re.fullmatch(pattern, name)
    if match is None:
        return ""
    owner = ProcessRef.of(int(match[2]))
    return "" if owner is not None and owner.alive() else match[1]


def has_mounts(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether something is mounted below a folder, which may be used elsewhere.

    A place may have any bytes except blanks and ends of lines, which the kernel escapes.
    """
    lines = mounts.read_bytes().split(b"\n")
    mounted = (os.fsdecode(line.split(b" ")[1]) for line in lines if line)
    return any(Path(place).is_relative_to(folder) for place in mounted)
