"""The memory that the job may still use before the kernel kills one of its processes."""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

_RESERVED_BYTES = 64 << 20
"""Reserved for everything else that the processes of the job do meanwhile."""
_UNLIMITED = 1 << 60


class MemoryBudget:
    """Memory that a copy may use. Invariant: `take` raises before the copy uses so much that the job may be killed."""

    def __init__(self, left_bytes: Optional[int]) -> None:
        """`left_bytes`: None = not known, so there is no bound."""
        self._left_bytes = left_bytes

    def take(self, size_bytes: int) -> None:
        """Use so much of the budget. Raises MemoryError."""
        if self._left_bytes is None:
            return
        if size_bytes > self._left_bytes:
            raise MemoryError(
                f"a copy of the state does not fit into the memory that Slurm gives the job on this node: a tensor needs "
                f"{size_bytes / 2**20:.0f} MiB, and {self._left_bytes / 2**20:.0f} MiB are left; request more memory (--mem)"
            )
        self._left_bytes -= size_bytes


def left_bytes(share: int = 1, proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> Optional[int]:
    """Return the memory that this process's cgroups leave it, divided by `share`; None = they set no limit, or cannot be read."""
    found = [left for limit, used in _limits(proc, root) for left in [limit - used] if limit < _UNLIMITED]
    return max(min(found) - _RESERVED_BYTES, 0) // max(share, 1) if found else None


def ranks_here(env: Mapping[str, str]) -> int:
    """Return the number of ranks of this job on this node, according to the launcher; 1 if it does not say."""
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"):
        text = env.get(name, "")
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def _limits(proc: str, root: str) -> Iterator[Tuple[int, int]]:
    """Yield limit and use in bytes of each cgroup above this process that has both. Memory that the kernel can free is not used."""
    try:
        with open(proc, encoding="ascii", errors="replace") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for row in rows:
        if len(row) != 3:
            continue
        if row[1] == "":
            top, names = root, ("memory.max", "memory.current", "")
        elif "memory" in row[1].split(","):
            top, names = os.path.join(root, "memory"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        for folder in _upwards(top, row[2]):
            limit, used = _number(folder, names[0]), _number(folder, names[1])
            if limit is not None and used is not None:
                stat = _stat(folder)
                dropped = (
                    f"{names[2]}active_file",
                    f"{names[2]}inactive_file",
                    "slab_reclaimable",
                )  # the last in v2 only
                yield limit, used - sum(stat.get(kind, 0) for kind in dropped)


def _upwards(top: str, path: str) -> List[str]:
    parts = [part for part in path.split("/") if part and part != ".."]
    return [os.path.join(top, *parts[:length]) for length in range(len(parts), -1, -1)]


def _number(folder: str, name: str) -> Optional[int]:
    """Return the number in a file; None = there is no such file, or no number in it, as without a limit."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return int(file.read(64))
    except (OSError, ValueError):
        return None


def _stat(folder: str) -> Dict[str, int]:
    found: Dict[str, int] = {}
    try:
        with open(os.path.join(folder, "memory.stat"), encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(" ")
                found[name] = int(value)
    except (OSError, ValueError):
        pass
    return found
