"""CPU time and memory of processes, from /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of CPU since the process started."""

    own_s: float
    children_s: float
    """CPU time of children that have ended and were waited for: every scontrol."""


def cpu_time(pid: int) -> CpuTime:
    """Return the CPU time of one process. The kernel counts in hundredths of a second."""
    # The name, in parentheses, may hold anything; what follows it does not.
    words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    user, system, children_user, children_system = (int(word) * _TICK_S for word in words[11:15])
    return CpuTime(user + system, children_user + children_system)


def memory_mib(pid: int) -> tuple[float, float]:
    """Return the resident memory now, and at its peak."""
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    values = {
        line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))
    }
    return int(values["VmRSS"]) / 1024, int(values["VmHWM"]) / 1024


@dataclass(frozen=True, slots=True)
class Load:
    """Mean use of one core, in percent."""

    own: float
    children: float


def load(pids: dict[str, int], seconds: float) -> dict[str, Load]:
    """Measure processes for so long."""
    begun_s = time.monotonic()
    before = {name: cpu_time(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    after = {name: cpu_time(pid) for name, pid in pids.items()}
    percent = 100 / (time.monotonic() - begun_s)
    return {
        name: Load(
            (after[name].own_s - before[name].own_s) * percent,
            (after[name].children_s - before[name].children_s) * percent,
        )
        for name in pids
    }
