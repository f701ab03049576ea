"""Waiting times of a job's cgroup, in both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

from nodeagent.identity.pressure import job_pressure
from nodeagent.wire.report import JobPressure

STALLED = "some avg10=0.00 avg60=1.50 avg300=0.20 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


def test_version_2_has_all_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "cpu.pressure").write_text(STALLED.format(some=1_500_000, full=7))
    (tmp_path / "memory.pressure").write_text(STALLED.format(some=250_000, full=125_000))
    (tmp_path / "cpu.stat").write_text("usage_usec 99\nnr_periods 40\nnr_throttled 12\nthrottled_usec 3500000\n")
    assert job_pressure([tmp_path]) == JobPressure(
        cpu_some_s=1.5, memory_some_s=0.25, memory_full_s=0.125, throttled_periods=12, throttled_s=3.5
    )


def test_version_1_counts_throttling_alone(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("nr_periods 40\nnr_throttled 0\nthrottled_time 2500000000\n")
    found = job_pressure([tmp_path / "memory", tmp_path])
    assert found == JobPressure(throttled_periods=0, throttled_s=2.5)
    assert job_pressure([tmp_path / "memory"]) is None
