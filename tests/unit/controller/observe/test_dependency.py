"""Dependencies of held jobs: met, not yet, or never."""

from dataclasses import fields

import pytest

from controller.observe.dependency import Dependencies, Met
from controller.slurm.model.job import Phase, SlurmJob
from tests.unit.controller.examples.build import NOW_S, job, running


def ended(job_id, state="COMPLETED", **more):
    return job(job_id, phase=Phase.ENDED, state=state, held=False, **more)


CLUSTER = Dependencies(
    [
        job("1"),
        running("2", on={"n1": 1}),
        ended("3"),
        ended("4", "FAILED"),
        ended("5_0", array_job_id=5),
        running("5_1", on={"n1": 1}, array_job_id=5),
        running("5_2", on={"n1": 1}, array_job_id=5, raw_id=6),
        ended("5_3", "FAILED", array_job_id=5, raw_id=7),
        ended("8", "CANCELLED", end_time_s=NOW_S - 100),
        job("20", name="solo", user="bob"),
        job("30_2", name="tasks", array_job_id=30),
        job("30_11", name="tasks", array_job_id=30),
    ],
    NOW_S,
)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("afterok:3(unfulfilled)", Met.YES),
        ("afterok:1(unfulfilled)", Met.NOT_YET),
        ("afterok:2", Met.NOT_YET),
        ("afterok:4(failed)", Met.NEVER),
        ("afterok:99", Met.YES),
        ("afterany:4", Met.YES),
        ("afterany:2:3", Met.NOT_YET),
        ("afternotok:4", Met.YES),
        ("afternotok:3", Met.NEVER),
        ("after:2", Met.YES),
        ("after:2+1(unfulfilled)", Met.YES),
        ("after:2+2(unfulfilled)", Met.NOT_YET),
        pytest.param(f"after:2+{'9' * 400}", Met.NOT_YET, id="no-float-is-so-large"),
        pytest.param(f"after:2+{'9' * 5000}", Met.NOT_YET, id="no-number-is-so-long"),
        ("after:2+2:3(unfulfilled)", Met.NOT_YET),
        ("after:1+2(unfulfilled)", Met.NOT_YET),
        ("after:8+1(unfulfilled)", Met.YES),
        ("after:8+2(unfulfilled)", Met.NOT_YET),
        ("after:99+60(unfulfilled)", Met.YES),
        ("after:1", Met.NOT_YET),
        ("afterok:3,afterany:4", Met.YES),
        ("afterok:3,afterok:4", Met.NEVER),
        ("afterok:4?afterok:3", Met.YES),
        ("afterok:4?afterok:2", Met.NOT_YET),
        ("afterany:5_*", Met.NOT_YET),
        ("afterok:5_0", Met.YES),
        ("afterok:6(unfulfilled)", Met.NOT_YET),
        ("afterany:6(unfulfilled)", Met.NOT_YET),
        ("afterok:7(failed)", Met.NEVER),
        ("something new", Met.YES),
    ],
)
def test_a_dependency_is_judged_by_what_became_of_the_other_jobs(text, met):
    assert CLUSTER.of(job("10", dependency=text)) is met


def test_an_array_task_corresponds_to_the_task_of_the_same_number():
    assert CLUSTER.of(job("10_0", dependency="aftercorr:5", array_job_id=10)) is Met.YES
    assert CLUSTER.of(job("10_1", dependency="aftercorr:5", array_job_id=10)) is Met.NOT_YET


def test_a_singleton_waits_for_earlier_jobs_of_its_name_and_user():
    assert CLUSTER.of(job("21", name="solo", user="bob", dependency="singleton")) is Met.NOT_YET
    assert CLUSTER.of(job("19", name="solo", user="bob", dependency="singleton")) is Met.YES
    assert CLUSTER.of(job("21", name="solo", user="ann", dependency="singleton")) is Met.YES


def test_tasks_of_a_singleton_take_their_turn_by_number():
    assert CLUSTER.of(job("30_2", name="tasks", dependency="singleton", array_job_id=30)) is Met.YES
    assert CLUSTER.of(job("30_11", name="tasks", dependency="singleton", array_job_id=30)) is Met.NOT_YET


class Counted(SlurmJob):
    """A job that counts how often a value of any of them is read."""

    reads = 0

    def __getattribute__(self, name):
        Counted.reads += 1
        return super().__getattribute__(name)


def reads(count, text, state):
    """Values of jobs that are read for so many jobs that each wait for an array of as many tasks."""
    jobs = [ended(f"7_{number}", state, array_job_id=7) for number in range(count)]
    jobs += [job(str(100 + number), dependency=text.format(number)) for number in range(count)]
    jobs = [Counted(**{each.name: getattr(one, each.name) for each in fields(one)}) for one in jobs]
    Counted.reads = 0
    dependencies = Dependencies(jobs, NOW_S)
    for one in jobs[count:]:
        dependencies.of(one)
    return Counted.reads


@pytest.mark.parametrize(
    "text", ["afterok:7_*(unfulfilled)", "afternotok:7_*", "after:7_*+{}", "singleton(unfulfilled)"]
)
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_the_jobs_on_which_many_depend_are_read_once(text, state):
    assert reads(80, text, state) <= 4.2 * reads(20, text, state)
