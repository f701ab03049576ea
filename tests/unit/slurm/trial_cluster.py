"""A mini-cluster whose files are written and that is never booted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slurm.minicluster.record import Record, boot_id
from slurm.minicluster.spec import ClusterSpec

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to Slurm's user")


def mode(path: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def trial(spec: ClusterSpec) -> Record:
    """Return the record of a cluster without GPUs, as if it was booting."""
    return Record(
        name=spec.name, directory=str(spec.home), made_directory=True, nodes=spec.node_names, gpus=0, rate=None, cgroup="none",
        subnet="10.77.5.0/24", slurm_user=spec.slurm_user, boot_id=boot_id(), booted_at_s=1.0,
    )  # fmt: skip
