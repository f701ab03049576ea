"""Sizes of the process, of its tables and of its files at the end of a day, and which of them still grow."""

from __future__ import annotations

import functools
import gc
import os
import resource
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.base.sqlite_file import KEPT_ASIDE

_CONTAINERS = (dict, list, set, deque)
_PACKAGES = ("controller.", "nodeagent.", "policies.")
_EMULATED = "controller.slurm.embedded."


@dataclass(frozen=True, slots=True)
class Day:
    """Record of one day, at its end."""

    number: int
    cycles: int
    """Cycles that the controller running at midnight has done since it started."""
    jobs: int
    """Jobs submitted on this day."""
    reports: int
    """Reports of agents that the controller running at midnight has stored since it started."""
    objects: int
    """Objects that Python's garbage collector knows: neither strings and numbers, nor most tuples of them."""
    blocks: int
    """Blocks of memory that Python's allocator has given out since the beginning: also for strings and numbers."""
    rss_mib: float
    """Present resident memory of the process."""
    threads: int
    children: int
    """Child processes, those included that have ended and that nothing has waited for."""
    files_kib: int
    """Everything under the controller's state and runtime folders, without what was moved aside."""
    moved_aside: int
    """Journals that could not be used, of which only the newest are kept."""
    descriptors: int
    violations: int
    tables: dict[str, int] = field(default_factory=dict)
    """Entries of the largest container of each attribute of a class of Headway ("NodeTable._nodes")."""


def process_sizes(blocks_before: int = 0) -> dict[str, Any]:
    """Return the sizes of this process, by the fields of `Day`. `blocks_before`: blocks at the beginning.

    Caches that have a bound are emptied before: some fill for years, and what grows beside them would not show.
    """
    _empty_caches()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks() - blocks_before,
        "rss_mib": round(pages * resource.getpagesize() / 2**20, 1),
        "threads": threading.active_count(),
        "children": sum(_parent(stat) == os.getpid() for stat in Path("/proc").glob("[0-9]*/stat")),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "tables": _tables(),
    }


def _empty_caches() -> None:
    """Empty each `lru_cache` of Headway's modules and classes, but those without a bound, which are to show as growth."""
    for module in [module for name, module in sys.modules.items() if name.startswith(_PACKAGES)]:
        named = list(vars(module).values())
        methods = [method for kind in named if isinstance(kind, type) for method in vars(kind).values()]
        for cache in (*named, *(getattr(method, "__func__", method) for method in methods)):
            if isinstance(cache, functools._lru_cache_wrapper) and cache.cache_parameters()["maxsize"] is not None:
                cache.cache_clear()


def _parent(stat: Path) -> int | None:
    """Return the parent in a process's stat file; None: the process has gone meanwhile."""
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _tables() -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for owner in gc.get_objects():
        kind = next((kind for kind in type(owner).__mro__ if _is_ours(kind)), None)
        if kind is not None:
            for name, held in _attributes(owner):
                if isinstance(held, _CONTAINERS):
                    found[f"{kind.__name__}.{name}"] = max(found[f"{kind.__name__}.{name}"], _entries(held))
    return dict(found)


def _is_ours(kind: type) -> bool:
    module = str(kind.__module__)
    return module.startswith(_PACKAGES) and not module.startswith(_EMULATED)


def _attributes(owner: object) -> Iterator[tuple[str, object]]:
    yield from list(getattr(owner, "__dict__", {}).items())
    for kind in type(owner).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(owner, name):
                yield name, getattr(owner, name)


def _entries(held: Any) -> int:
    """Return the number of entries of a container, those of containers in it included."""
    inner = list(held.values()) if isinstance(held, dict) else list(held)
    return len(inner) + sum(len(each) for each in inner if isinstance(each, _CONTAINERS))


_TOLERANCES = {
    "objects": 1.1, "blocks": 1.1, "rss_mib": 1.05, "files_kib": 1.05, "descriptors": 1.05, "threads": 1.0, "children": 1.0
}  # fmt: skip
"""Growth that is no finding: how many jobs there are at a midnight depends on chance."""
_TABLES, _ENTRIES = 1.5, 10


_LEAST_DAYS = 4
"""Days that can be compared: one in each quarter."""


def levels_off(days: Sequence[Day], bounds: Mapping[str, int] | None = None) -> list[str]:
    """Return a sentence for each quantity that still grows in the second half of the days; empty: none grows.

    `bounds`: size of each table that fills up in the course of days. Only the days since all of them have been full are compared:
    until then everything grows with them, and hides what has no bound. Too few such days are a finding too.
    A table grows if it has half as many entries again, and ten more.
    """
    found = []
    if days[-1].moved_aside > KEPT_ASIDE:
        found.append(f"{days[-1].moved_aside} journals were moved aside, and at most {KEPT_ASIDE} are to be kept")
    settled = _settled(days, bounds or {})
    if len(settled) < _LEAST_DAYS:
        return [*found, f"{len(settled)} days since {', '.join(bounds or {})} is full: too few to see what grows"]
    return found + _grown(settled)


def _settled(days: Sequence[Day], bounds: Mapping[str, int]) -> Sequence[Day]:
    """Return the days since all these tables have been full. A restart of the controller may have emptied them."""
    filling = (day.number for day in days if any(day.tables.get(name, 0) < most for name, most in bounds.items()))
    last = max(filling, default=0)
    return [day for day in days if day.number > last]


def _grown(days: Sequence[Day]) -> list[str]:
    """Compare the second quarter of the days with the last one."""
    half = len(days) // 2
    earlier, later = days[half // 2 : half], days[-len(days[half // 2 : half]) :]
    between = f"between days {earlier[0].number} and {later[-1].number}"
    found = []
    for name, most in _TOLERANCES.items():
        before, after = (max(getattr(day, name) for day in part) for part in (earlier, later))
        if after > before * most + 1:
            found.append(f"{name} grew from {before} to {after} {between}")
    for name in sorted({name for day in later for name in day.tables}):
        before, after = (max(day.tables.get(name, 0) for day in part) for part in (earlier, later))
        if after > before * _TABLES + _ENTRIES:
            found.append(f"{name} grew from {before} to {after} entries {between}")
    return found
