"""Slowdowns measured on this machine: emulated jobs really run and stop, and rows follow from what was measured."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import cast

import pytest

from simulator.papers.marl.interference_fit import measuring
from simulator.papers.marl.interference_fit.emulated import KINDS, EmulatedJob, SoFar
from simulator.papers.marl.interference_fit.measuring import (
    Measured,
    Sample,
    as_text,
    measure,
    runnable,
    sample,
    stored,
)

FOUND = {
    "cores": 2,
    "gb_per_s": 10.0,
    "cpu_ms": {"reader": 4.0, "light": 20.0},
    "rows": [{"job": "reader", "others": ["light", "light"], "foreign": 0.5, "step_ms": [10.0, 12.0]}],
}


def test_a_row_has_the_uses_of_others_and_the_time_of_a_step_over_that_without_waiting() -> None:
    found = Measured.of(FOUND)
    (row,) = found.rows
    # A step of `reader` is 4 ms of its core and 4 ms of its GPU; one of `light` is 20 ms of each, and copies 4 MiB.
    assert (row.own_cpu, row.own_pcie) == pytest.approx((0.5, 0.0))
    assert row.others_cpu == pytest.approx(2 * 0.5 + 0.5)
    assert row.others_pcie == pytest.approx(2 * 4 * (1 << 20) / 0.040 / 10e9)
    assert (row.slowdown, *found.again) == pytest.approx((0.25, 0.5)) and found.foreign == 0.5
    assert json.loads(as_text(FOUND)) == FOUND


def test_runnable_processes_are_those_of_the_machine_without_this_one(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3\nprocs_running 4\nprocs_blocked 0\n")
    assert runnable(0.0, stat) == 3.0
    assert runnable(0.02) >= 0.0


def test_a_paused_job_makes_no_steps() -> None:
    job = EmulatedJob(KINDS["light"])
    try:
        deadline = time.monotonic() + 60.0
        while job.so_far.steps < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        job.pause()
        time.sleep(0.05)
        steps = job.so_far
        time.sleep(0.1)
        assert job.so_far == steps
        job.resume()
        while job.so_far.steps == steps.steps:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        job.close()


def test_a_sample_has_two_measurements_that_last_as_long_as_a_step_at_least() -> None:
    found = sample("light", ["reader"], window_s=0.1)
    assert all(step_s >= KINDS["light"].gpu_s for step_s in found.step_s)
    assert found.cpu_s["light"] > 0.0 and found.foreign >= 0.0


class _Steps:
    """A job with a step every 10 ms whose end the measuring process sees 25 ms late, but the last at once."""

    def __init__(self) -> None:
        self.begin_s = time.perf_counter()

    @property
    def so_far(self) -> SoFar:
        ago_s = time.perf_counter() - self.begin_s
        seen = math.floor((ago_s if ago_s > 0.1 else max(0.0, ago_s - 0.025)) / 0.01)
        return SoFar(seen, self.begin_s + 0.01 * seen, 0.0)


def test_a_step_lasts_as_long_as_the_job_says_however_late_its_end_is_seen() -> None:
    assert measuring._step_s(cast("EmulatedJob", _Steps()), window_s=0.1) == pytest.approx(0.01)


def test_a_measurement_has_a_row_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(name: str, others: list[str], _window_s: float) -> Sample:
        return Sample(0.25, (0.01 * len(others), 0.02), dict.fromkeys((name, *others), 0.001 * len(others)))

    monkeypatch.setattr(measuring, "sample", fake)
    monkeypatch.setattr(measuring, "copying_bandwidth", lambda: 1e10)
    found = measure(40, 0.1, seed=0)
    assert found == measure(40, 0.1, seed=0) and set(found["cpu_ms"]) == set(KINDS)
    assert {len(row["others"]) for row in found["rows"]} == {1, 2, 3}
    assert set(found["cpu_ms"].values()) == {1.0}, "the least of all samples"
    assert [row["step_ms"][0] for row in found["rows"]] == [10.0 * len(row["others"]) for row in found["rows"]]


def test_the_stored_measurements_are_complete() -> None:
    measured = stored()
    assert len(measured.rows) == len(measured.again) >= 100
    assert all(row.slowdown > -0.5 and row.others_cpu > 0.0 for row in measured.rows)
    assert sum(row.slowdown for row in measured.rows) > 0.0
