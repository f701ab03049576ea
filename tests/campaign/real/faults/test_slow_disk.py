"""Writes of an unchanged program to one disk take long, and no others do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.campaign.plot.story import Step
from tests.campaign.real.faults.slow_disk import SlowDisk, build_slow_disk
from tests.campaign.real.play import inject

ELSEWHERE = Path("/dev/shm")
BYTES_PER_S = 40_960.0
WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("CREATE TABLE IF NOT EXISTS t (a)")
begun_s = time.monotonic()
db.execute("INSERT INTO t VALUES (1)")
print(time.monotonic() - begun_s)
"""


@pytest.fixture
def slow_disk(tmp_path: Path) -> SlowDisk:
    (tmp_path / "disk").mkdir()
    found = build_slow_disk(tmp_path / "library", tmp_path / "disk")
    if found.missing:
        pytest.skip(found.missing)
    return found


def write(disk: SlowDisk, path: Path) -> float:
    """Return the seconds in which a process adds a row to a database there."""
    argv = [sys.executable, "-c", WRITER, str(path)]
    done = subprocess.run(argv, env={**os.environ, **disk.environment}, capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_a_write_of_sqlite_waits_while_the_disk_is_slow(slow_disk: SlowDisk) -> None:
    path = slow_disk.disk / "journal.sqlite"
    write(slow_disk, path)
    assert slow_disk.waits_s == []
    slow_disk.slow(BYTES_PER_S)
    took_s = write(slow_disk, path)
    waits_s = slow_disk.waits_s
    page_s = 4096 / BYTES_PER_S
    assert max(waits_s) == pytest.approx(page_s)
    assert took_s >= page_s
    slow_disk.usual()
    write(slow_disk, path)
    assert slow_disk.waits_s == waits_s


@pytest.mark.skipif(not ELSEWHERE.is_dir(), reason=f"no {ELSEWHERE}: a second file system is needed")
def test_writes_to_other_disks_do_not_wait(slow_disk: SlowDisk, tmp_path: Path) -> None:
    if ELSEWHERE.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{ELSEWHERE} is on the disk of the tests")
    slow_disk.slow(BYTES_PER_S)
    other = ELSEWHERE / f"headway-test-{os.getpid()}.sqlite"
    try:
        write(slow_disk, other)
    finally:
        for path in ELSEWHERE.glob(f"{other.name}*"):
            path.unlink()
    assert slow_disk.waits_s == []


def test_without_a_compiler_the_fault_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    disk = build_slow_disk(tmp_path / "library", tmp_path)
    scene = MagicMock()
    scene.world.slow_disk = disk
    why = inject(scene, Step(0.0, "disk_slow", {"bytes_per_s": BYTES_PER_S, "seconds": 5.0}))
    assert why == "no C compiler: install gcc and libc6-dev"
    assert disk.environment == {}
    scene.world.healer.later.assert_not_called()
