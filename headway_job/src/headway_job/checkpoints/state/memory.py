"""The memory that the job may still use before the kernel kills one of its processes."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional

_RESERVED_BYTES = 64 << 20
"""Reserved for everything else that the processes of the job do meanwhile."""
_UNLIMITED = 1 << 60
_WHOLE = Fraction(1)


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

    def for_each_of(self, ranks: int, part: Fraction = _WHOLE) -> MemoryBudget:
        """Return a budget from which each tensor takes as much as so many ranks need, which copy at the same time.

        `part`: of what this rank copies, so much is copied by each of the others; where that is not known, the least possible.
        """
        return _SharedBudget(self, 1 + (ranks - 1) * part)


class _SharedBudget(MemoryBudget):
    """A part of another budget."""

    def __init__(self, whole: MemoryBudget, times: Fraction) -> None:
        super().__init__(None)
        self._whole = whole
        self._times = times

    def take(self, size_bytes: int) -> None:
        self._whole.take(int(size_bytes * self._times))


def left_bytes(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> Optional[int]:
    """Return the memory that this process's cgroups leave it; None = they set no limit, or cannot be read.

    For copies that can be left out: it leaves memory for the rest of the job, and no swap is used.
    """
    found = [group.limit - group.used for group in _limits(proc, root) if group.limit < _UNLIMITED]
    return max(min(found) - _RESERVED_BYTES, 0) if found else None


def most_bytes(
    share: int = 1, proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup", meminfo: str = "/proc/meminfo"
) -> Optional[int]:
    """Return the most memory that this process's cgroups let it use, with swap; None = they set no limit, or cannot be read.

    What needs more cannot succeed. So a resume, without which the job cannot train, is refused for nothing less.
    """
    swap = _stat(meminfo).get("SwapFree:", 0) << 10
    found = [
        group.limit - group.used + max(min(swap, group.swap), 0)
        for group in _limits(proc, root)
        if group.limit < _UNLIMITED
    ]
    return max(min(found), 0) // max(share, 1) if found else None


def ranks_here(env: Mapping[str, str]) -> int:
    """Return the number of ranks of this job on this node, according to the launcher; 1 if it does not say."""
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"):
        text = env.get(name, "")
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
    return 1


class _Cgroup(NamedTuple):
    """The memory of a cgroup, in bytes."""

    limit: int
    used: int
    """Memory that the kernel can free is not used."""
    swap: int
    """Swap that it may use besides."""


_FILES_V2 = ("memory.max", "memory.current", "memory.swap.max", "memory.swap.current")
_FILES_V1 = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.memsw.usage_in_bytes",
)
"""In v1, the last two are the sums of memory and swap."""


def _limits(proc: str, root: str) -> Iterator[_Cgroup]:
    """Yield each cgroup above this process that has a limit of memory and its use."""
    try:
        with open(proc, encoding="ascii", errors="replace") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for row in rows:
        if len(row) != 3:
            continue
        if row[1] == "":
            top, names, prefix = root, _FILES_V2, ""
        elif "memory" in row[1].split(","):
            top, names, prefix = os.path.join(root, "memory"), _FILES_V1, "total_"
        else:
            continue
        for folder in _upwards(top, row[2]):
            limit, used, most_swap, swapped = (_number(folder, name) for name in names)
            if limit is None or used is None:
                continue
            swap = _UNLIMITED if most_swap is None or swapped is None else most_swap - swapped
            if names is _FILES_V1 and swap < _UNLIMITED:
                swap -= limit - used
            stat = _stat(folder + "/memory.stat")
            dropped = (f"{prefix}active_file", f"{prefix}inactive_file", "slab_reclaimable")  # the last in v2 only
            yield _Cgroup(limit, used - sum(stat.get(kind, 0) for kind in dropped), swap)


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


def _stat(path: str) -> Dict[str, int]:
    """Return the numbers in a file of the kernel, by name. In /proc/meminfo, names end in a colon, and numbers are in KiB."""
    found: Dict[str, int] = {}
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, value = line.split()[:2]
                found[name] = int(value)
    except (OSError, ValueError):
        pass
    return found
