"""Pauses between readings, which follow from how long the last one took."""

from __future__ import annotations

import pytest

from controller.base.config import ControllerSettings
from controller.cycle.view.health import Health
from controller.daemon.pacing.intervals import Intervals


def intervals(*reads_s: float, **settings: float) -> Intervals:
    health = Health(started_s=0.0, begun_at_s=0.0)
    for read_s in reads_s:
        health.note_reading(read_s)
    return Intervals(lambda: ControllerSettings(partitions=("dl",), **settings), health)


def test_readings_that_no_job_waits_for_are_rarer() -> None:
    assert (intervals(0.02).least_s, intervals(0.02).leisure_s) == (1.0, 3.0)
    assert (intervals(2.0).least_s, intervals(2.0).leisure_s) == (4.0, 12.0)


def test_one_slow_reading_among_quick_ones_delays_no_job() -> None:
    usual = intervals(0.02, 0.02, 0.02).quiet_s
    assert intervals(0.02, 0.02, 1.5).quiet_s == usual < 10.0
    assert intervals(0.02, 1.5, 1.5, 1.5).quiet_s == 60.0


@pytest.mark.parametrize("stood_still_s", [40.0, 3600.0, 1e9])
def test_a_controller_that_stood_still_during_a_reading_reads_again_soon(stood_still_s: float) -> None:
    assert intervals(stood_still_s).least_s == intervals(10.0).least_s == 20.0
    assert intervals(stood_still_s).leisure_s == 60.0


@pytest.mark.parametrize("timeout_s", [1.0, 10.0, 60.0, 300.0])
@pytest.mark.parametrize("read_s", [0.0, 0.01, 0.5, 3.0, 20.0, 299.0, 1e9])
def test_the_lease_lasts_longer_than_any_pause(read_s: float, timeout_s: float) -> None:
    found = intervals(read_s, slurm_timeout_s=timeout_s)
    assert found.patience_s > max(found.quiet_s, found.leisure_s)
    assert found.least_s <= found.leisure_s
