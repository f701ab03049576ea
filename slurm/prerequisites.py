"""What the mini-cluster needs of the machine, and how to get it."""

from __future__ import annotations

import os
import shutil


def missing() -> list[str]:
    """Reasons, each with its mend, why no mini-cluster can be booted here; empty if one can."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("the mini-cluster needs root (it makes network namespaces); run it with sudo")
    programs = ("slurmctld", "slurmd", "scontrol", "sinfo", "munged", "ip", "tc", "nsenter", "unshare")
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        reasons.append(f"not installed: {', '.join(absent)}")
    return reasons
