"""Dependencies of held jobs: met, not yet, or never."""

import pytest

from controller.observe.dependency import Dependencies, Met
from controller.slurm.client import Phase
from tests.unit.controller.examples.build import job, running


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
        job("20", name="solo", user="bob"),
    ]
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
        ("after:2+5(unfulfilled)", Met.YES),
        ("after:1", Met.NOT_YET),
        ("afterok:3,afterany:4", Met.YES),
        ("afterok:3,afterok:4", Met.NEVER),
        ("afterok:4?afterok:3", Met.YES),
        ("afterok:4?afterok:2", Met.NOT_YET),
        ("afterany:5_*", Met.NOT_YET),
        ("afterok:5_0", Met.YES),
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
