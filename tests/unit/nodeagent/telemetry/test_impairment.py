"""GPUs that are slower than they should be by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.telemetry.impairment import (
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    SW_POWER_CAP,
    SW_THERMAL,
    UNANSWERED_NS,
    Impairments,
    of_job,
)
from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.wire.report import GpuHealth, GpuProcess, GpuReading, ImpairedGpu

S = 1_000_000_000
FINE = GpuHealth(
    clock_events=0, power_violation_s=7.0, thermal_violation_s=3.0, ecc_uncorrected=0, rows_remapped_corrected=7,
    rows_remapped_uncorrected=0, remapping_pending=False, remapping_failed=False, pcie_replays=7, nvlink_crc_errors=7,
    nvlink_replays=7, nvlink_recoveries=7, xid_errors=0,
)  # fmt: skip


def gpu(index: int = 0, health: GpuHealth = FINE, processes: tuple[GpuProcess, ...] = ()) -> GpuReading:
    nothing = dict.fromkeys(GpuReading.__slots__)
    return GpuReading(**{**nothing, "index": index, "health": health, "processes": processes, "mig": ()})  # type: ignore[arg-type]


def job(job_id: int = 7, gpus: tuple[int, ...] | None = (0,), restart: int = 0) -> SlurmJob:
    return SlurmJob(job_id, 1000, restart, (), frozenset(), gpus)


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({}, ()),
        ({"thermal_violation_s": 3.09}, ()),  # less than 2 % of 5 s
        ({"thermal_violation_s": 3.11}, ("thermal",)),
        ({"thermal_violation_s": 4.0, "clock_events": HW_POWER_BRAKE}, ("power", "thermal")),
        ({"power_violation_s": 12.0, "clock_events": SW_POWER_CAP}, ()),  # at its power limit, as every busy GPU
        ({"clock_events": SW_THERMAL}, ()),  # a moment of it; the counter has the whole interval
        ({"thermal_violation_s": None, "clock_events": SW_THERMAL | 1}, ("thermal",)),
        ({"thermal_violation_s": None, "clock_events": HW_SLOWDOWN}, ("thermal",)),
        ({"xid_errors": 1}, ("xid",)),
        ({"ecc_uncorrected": 1}, ("xid",)),
        ({"rows_remapped_uncorrected": 1}, ("memory",)),
        ({"rows_remapped_corrected": 9, "remapping_pending": True}, ()),  # corrected in time: not slower by it
        ({"nvlink_crc_errors": 8}, ("nvlink",)),
        ({"nvlink_replays": 8, "pcie_replays": 8}, ("nvlink", "pcie")),
        ({"nvlink_recoveries": 8}, ("nvlink",)),
        ({"xid_errors": None, "clock_events": None}, ()),
    ],
)
def test_what_has_risen_since_the_last_reading(change: dict[str, Any], causes: tuple[str, ...]) -> None:
    impairments = Impairments()
    assert impairments.read([gpu()], 100 * S) == {}
    found = impairments.read([gpu(health=replace(FINE, **change))], 105 * S)
    assert found == ({0: causes} if causes else {})
    # and it is over when nothing rises any more
    still = {name: value for name, value in change.items() if name != "clock_events"}
    assert impairments.read([gpu(health=replace(FINE, **still))], 110 * S) == {}


def test_after_a_reading_that_failed_the_whole_time_since_the_last_counts() -> None:
    impairments = Impairments()
    impairments.read([gpu(), gpu(1)], 0)
    impairments.read([gpu(1)], 5 * S)
    assert impairments.read([gpu(health=replace(FINE, thermal_violation_s=3.15)), gpu(1)], 10 * S) == {}
    assert impairments.read([gpu(health=replace(FINE, thermal_violation_s=3.30)), gpu(1)], 15 * S) == {0: ("thermal",)}


def test_counters_that_began_anew_are_no_impairment_but_what_they_have_counted_is() -> None:
    impairments = Impairments()
    impairments.read([gpu(health=replace(FINE, xid_errors=5))], 0)
    assert impairments.read([gpu(health=replace(FINE, xid_errors=0, power_violation_s=0.0))], 5 * S) == {}
    impairments.read([gpu(health=replace(FINE, xid_errors=5))], 10 * S)
    assert impairments.read([gpu(health=replace(FINE, xid_errors=1))], 15 * S) == {0: ("xid",)}


def test_a_row_that_could_not_be_remapped_impairs_a_gpu_until_it_is_replaced() -> None:
    impairments, failed = Impairments(), gpu(health=replace(FINE, remapping_failed=True))
    for second in (0, 5, 10):
        assert impairments.read([failed], second * S) == {0: ("memory",)}


def test_a_gpu_that_was_there_and_no_longer_is_is_lost_as_long_as_it_is_away() -> None:
    impairments = Impairments()
    assert impairments.read([gpu(0), gpu(1)], 0) == {}
    assert impairments.read([gpu(1)], 5 * S) == {0: ("lost",)}
    assert impairments.read([gpu(1)], 10 * S) == {0: ("lost",)}
    assert impairments.read([gpu(0), gpu(1)], 15 * S) == {}


def test_gpus_that_a_driver_no_longer_answers_for_are_lost_after_a_while() -> None:
    impairments = Impairments()
    assert impairments.unread(100 * S) == {}  # there have been no GPUs so far
    impairments.read([gpu(0), gpu(1)], 200 * S)
    assert impairments.unread(200 * S + UNANSWERED_NS) == {}
    assert impairments.unread(201 * S + UNANSWERED_NS) == {0: ("lost",), 1: ("lost",)}


def test_a_job_has_its_own_gpus_or_those_that_its_processes_use() -> None:
    gpus = [gpu(0), gpu(1, processes=(GpuProcess(5, None, 7),)), gpu(2, processes=(GpuProcess(6, None, 8),))]
    found = {0: ("power",), 1: ("xid",), 2: ("thermal",)}
    assert of_job(job(gpus=(0, 3)), gpus, found) == (ImpairedGpu(0, ("power",)),)  # type: ignore[arg-type]
    assert of_job(job(gpus=None), gpus, found) == (ImpairedGpu(1, ("xid",)),)  # type: ignore[arg-type]
    assert of_job(job(gpus=()), gpus, found) == ()  # type: ignore[arg-type]
