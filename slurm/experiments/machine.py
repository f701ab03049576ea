"""The machine on which real jobs were measured, and how busy it was."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Return the properties of this machine that influence the figures."""
    version = subprocess.run(
        ["slurmctld", "-V"], capture_output=True, text=True, timeout=10, check=False
    ).stdout.strip()
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "slurm": version,
        "load_average": os.getloadavg(),
    }


def cpu_ticks() -> tuple[float, float]:
    """Return the busy ticks and all ticks of all cores, since the machine's boot."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))
