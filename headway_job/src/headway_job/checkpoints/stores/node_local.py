"""Folders that only one node has: after a requeue to another node, a job does not find its checkpoints there."""

from __future__ import annotations

import logging
import os
import re
from typing import List, Mapping, Optional

_log = logging.getLogger("headway_job")
_MOUNTS = "/proc/self/mountinfo"
_LOCAL = frozenset(
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs"]
)
"""File systems of one machine. All others count as shared: a warning that is wrong is worse than none."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system(path: str) -> Optional[str]:
    """Return the type of the file system of a path if only this node has it; None = nodes may share it, or it is not known.

    The path need not exist. A compute node that exports its own disk to all others is taken for one that does not.
    """
    found, longest = None, -1
    real = os.path.realpath(path)
    for line in _mounts():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:
            continue
        point = _ESCAPED.sub(lambda code: chr(int(code.group(1), 8)), parts[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two at one point, the later one hides the other
            found, longest = rest.split(" ", maxsplit=1)[0], len(point)
    return found if found in _LOCAL else None


def warn(where: str, env: Mapping[str, str]) -> None:
    """Warn if a Slurm job, which can be started again on another node, keeps its checkpoints on this one."""
    kind = file_system(where) if env.get("SLURM_JOB_ID") and where.startswith("/") else None
    if kind is not None:
        _log.warning(
            "Checkpoints are kept in the folder %s, on a file system of this node alone (%s). If Slurm starts the job again on "
            "another node, it does not find them, and begins at step 0. Name a folder that all nodes share: in the job script, "
            "before the program is started, by `export HEADWAY_CHECKPOINT_DIR=FOLDER` (each job gets its own folder in it), or in "
            "the program, by headway_job.checkpoint(FOLDER, ...).",
            where, kind,
        )  # fmt: skip


def _mounts() -> List[str]:
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []  # no Linux
