"""Waiting times of a job, as the kernel counts them for its cgroup: pressure stall information, and throttling by a CPU quota."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nodeagent.wire.report import JobPressure

_TOTAL = re.compile(r"^(some|full) .*\btotal=([0-9]{1,20})$", re.MULTILINE)
_COUNT = re.compile(r"^(nr_throttled|throttled_usec|throttled_time) ([0-9]{1,20})$", re.MULTILINE)


def job_pressure(folders: Iterable[Path]) -> JobPressure | None:
    """Return the waiting times of the job with these folders; None = none of them counts any.

    Version 2 of cgroups has one folder, with all files. Of version 1 the folder of the controller `cpu` counts throttling.
    """
    found: dict[str, float | int | None] = {}
    for folder in folders:
        for resource in ("cpu", "memory", "io"):
            # `full` of the CPU is always 0 for a cgroup's own processes, or not there.
            found |= {
                f"{resource}_{kind}_s": int(microseconds) / 1e6
                for kind, microseconds in _TOTAL.findall(_text(folder / f"{resource}.pressure"))
                if (resource, kind) != ("cpu", "full")
            }
        counted = {name: int(count) for name, count in _COUNT.findall(_text(folder / "cpu.stat"))}
        if "nr_throttled" in counted:
            found["throttled_periods"] = counted["nr_throttled"]
            nanoseconds = counted.get("throttled_time")
            microseconds = counted.get("throttled_usec")
            found["throttled_s"] = (
                microseconds / 1e6 if microseconds is not None else None if nanoseconds is None else nanoseconds / 1e9
            )
    return JobPressure(**found) if found else None  # type: ignore[arg-type]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # not counted: an older kernel, psi=0, or a job that has ended
        return ""
