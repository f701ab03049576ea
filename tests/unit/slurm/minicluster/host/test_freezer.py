"""Frozen processes of a cluster go on before they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.minicluster.host import cgroups
from slurm.processes import wait_until

_FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup in which processes can be frozen."""
    folder = _FREEZER / f"headway-test-{os.getpid()}" / "step"
    if not (_FREEZER / "tasks").exists() or not os.access(_FREEZER, os.W_OK):
        pytest.skip(f"{_FREEZER} is no hierarchy of v1 that this user may write")
    folder.mkdir(parents=True)
    yield folder
    cgroups.thaw([folder.parent])
    cgroups.remove([folder.parent])


def test_a_frozen_process_ends_by_sigkill_once_it_is_thawed(freezer: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            cgroups.enclose(child.pid, [freezer])
            assert cgroups.freezer_of(child.pid) == freezer
            (freezer / "freezer.state").write_text("FROZEN")
            assert wait_until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", 30.0)
            child.kill()
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.2)
            cgroups.thaw([freezer.parent])
            assert child.wait(60.0) == -signal.SIGKILL
        finally:
            cgroups.thaw([freezer.parent])
            child.kill()


def test_cgroups_that_are_missing_are_left_out(tmp_path: Path) -> None:
    cgroups.thaw([tmp_path / "headway-none"])
    assert cgroups.freezer_of(2**30) is None


def test_the_freezer_of_a_process_is_found_in_its_list_of_cgroups(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("6:freezer:/headway-a/n1/job_10\n5:devices:/headway-a\n0::/x:y\n")
    assert cgroups.freezer_of(7, Path("/cg"), tmp_path) == Path("/cg/freezer/headway-a/n1/job_10")
    (tmp_path / "7" / "cgroup").write_text("0::/headway-a\n")
    assert cgroups.freezer_of(7, Path("/cg"), tmp_path) is None
