"""The energy of jobs, from the counters of their GPUs."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.telemetry.energy import JobEnergy
from nodeagent.telemetry.slurm_jobs import SlurmJob
from tests.unit.nodeagent.telemetry.test_impairment import FINE, gpu, job


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
    # the next run begins anew, and so does a job on another GPU
    assert used(energy, {0: 150.0, 1: 1000.0}, job(restart=1), job(8, (0, 1))) == {7: 0.0, 8: 100.0}
    # two jobs on one GPU have a half each
    assert used(energy, {0: 250.0, 1: 1000.0}, job(restart=1), job(8, (0, 1))) == {7: 50.0, 8: 150.0}
    # a GPU without a counter, and no GPU at all, are not known
    assert used(energy, {0: None, 1: None}, job(9, (0,)), job(10, None)) == {}


def test_a_run_that_a_few_readings_miss_goes_on_from_what_it_had() -> None:
    energy = JobEnergy()
    used(energy, {0: 100.0}, job())
    assert used(energy, {0: 150.0}, job()) == {7: 50.0}
    # no reading returns one that is absent
    assert used(energy, {0: 200.0}) == {}
    assert used(energy, {0: 210.0}, job()) == {7: 60.0}
    # and one that has ended is forgotten
    for _ in range(30):
        assert used(energy, {0: 210.0}) == {}
    assert energy._used == energy._absent == {}
    assert energy._holders == {0: set()}
    assert used(energy, {0: 215.0}, job()) == {7: 0.0}


def test_the_energy_of_a_job_that_ended_unseen_is_not_given_to_the_next_one() -> None:
    """The driver did not answer from before the end of a job until another one had begun on its GPU."""
    energy = JobEnergy()
    used(energy, {0: 0.0}, job(7, (0,)))
    for jobs in ([job(7, (0,))], [], [job(8, (0,))]):
        used(energy, {}, *jobs)
    assert used(energy, {0: 2_520_000.0}, job(8, (0,))) == {8: 0.0}
    assert used(energy, {0: 2_523_500.0}, job(8, (0,))) == {8: 3500.0}


def test_the_next_job_on_a_gpu_is_credited_from_the_first_reading_on_at_which_it_held_it() -> None:
    energy = JobEnergy()
    used(energy, {0: 0.0, 1: 0.0}, job(7, (0,)), job(8, (1,)))
    assert used(energy, {0: 3500.0, 1: 500.0}, job(8, (0, 1))) == {8: 500.0}
    assert used(energy, {0: 4500.0, 1: 500.0}, job(8, (0, 1))) == {8: 1500.0}
