"""GPUs that are slower than they should be by themselves, and the energy of jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.telemetry.energy import JobEnergy
from nodeagent.telemetry.impairment import HW_POWER_BRAKE, HW_SLOWDOWN, SW_POWER_CAP, SW_THERMAL, Impairments, of_job
from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.wire.report import GpuHealth, GpuProcess, GpuReading, ImpairedGpu

S = 1_000_000_000
FINE = GpuHealth(clock_events=0, power_violation_s=7.0, thermal_violation_s=3.0, ecc_uncorrected=0, xid_errors=0)


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


def test_a_job_has_its_own_gpus_or_those_that_its_processes_use() -> None:
    gpus = [gpu(0), gpu(1, processes=(GpuProcess(5, None, 7),)), gpu(2, processes=(GpuProcess(6, None, 8),))]
    found = {0: ("power",), 1: ("xid",), 2: ("thermal",)}
    assert of_job(job(gpus=(0, 3)), gpus, found) == (ImpairedGpu(0, ("power",)),)  # type: ignore[arg-type]
    assert of_job(job(gpus=None), gpus, found) == (ImpairedGpu(1, ("xid",)),)  # type: ignore[arg-type]
    assert of_job(job(gpus=()), gpus, found) == ()  # type: ignore[arg-type]


def used(energy: JobEnergy, joules: dict[int, float | None], *jobs: SlurmJob) -> dict[int, float]:
    gpus = [gpu(index, replace(FINE, energy_j=value)) for index, value in joules.items()]
    found = energy.read(gpus, {each.job_id: each for each in jobs})
    return {job_id: value for (job_id, _), value in found.items()}


def test_a_job_uses_the_energy_of_its_gpus_while_it_has_them() -> None:
    energy = JobEnergy()
    assert used(energy, {0: 1000.0, 1: 500.0}, job()) == {7: 0.0}
    assert used(energy, {0: 1600.0, 1: 900.0}, job()) == {7: 600.0}
    # a reading that failed loses nothing
    assert used(energy, {}, job()) == {7: 600.0}
    assert used(energy, {0: 2000.0, 1: 900.0}, job(), job(8, (1,))) == {7: 1000.0, 8: 0.0}
    # the driver was loaded again
    assert used(energy, {0: 50.0, 1: 1000.0}, job(), job(8, (1,))) == {7: 1050.0, 8: 100.0}
    # two jobs on one GPU have a half each, and the next run begins anew
    assert used(energy, {0: 150.0, 1: 1000.0}, job(restart=1), job(8, (0, 1))) == {7: 50.0, 8: 150.0}
    # a run that a few readings miss goes on from what it had, and no reading returns one that is absent
    assert used(energy, {0: 200.0, 1: 1000.0}, job(8, (1,))) == {8: 150.0}
    assert used(energy, {0: 210.0, 1: 1000.0}, job(restart=1)) == {7: 60.0}
    # one that has ended is forgotten
    for _ in range(30):
        assert used(energy, {0: 210.0, 1: 1000.0}) == {}
    assert energy._used == energy._absent == {}
    assert used(energy, {0: 215.0, 1: 1000.0}, job(restart=1)) == {7: 5.0}
    # a GPU without a counter, and no GPU at all, are not known
    assert used(energy, {0: None, 1: None}, job(9, (0,)), job(10, None)) == {}
