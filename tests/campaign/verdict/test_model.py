"""The model of the stories finds what breaks a promise in Slurm's accounting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.campaign.plot.story import JobSpec
from tests.campaign.verdict.model import Model, Promise


@pytest.fixture
def model() -> Model:
    return Model(lambda: 0.0)


def account(model: Model, what: str, job_id: str, gpus: int = 1, ending: tuple[str, ...] = ()) -> None:
    job: Any = SimpleNamespace(job_id=job_id, allocated=[SimpleNamespace(node="n1", gpus=gpus)])
    model.account(what, job, ending)


def broken(model: Model) -> list[tuple[Promise, str]]:
    return [(violation.promise, violation.job) for violation in model.violations]


@pytest.mark.parametrize(
    ("kind", "end", "sound"),
    [
        ("afterok", "COMPLETED", True),
        ("afterok", "FAILED", False),
        ("afterany", "FAILED", True),
        ("afterany", "", False),
        ("afterok", "REQUEUED", False),
    ],
)
def test_a_job_starts_after_its_dependencies(model: Model, kind: str, end: str, sound: bool) -> None:
    model.submitted("1", JobSpec(0, 1.0))
    model.submitted("2", JobSpec(1, 1.0), [(kind, "1")])
    model.may_requeue("1")
    account(model, "START", "1")
    if end:
        account(model, end, "1")
    account(model, "START", "2")
    assert broken(model) == ([] if sound else [(Promise.NOT_BEFORE_ITS_TIME, "2")])


def test_a_dependency_on_a_job_that_slurmctld_has_lost_does_not_count(model: Model) -> None:
    model.submitted("1", JobSpec(0, 1.0))
    model.submitted("2", JobSpec(1, 1.0), [("afterok", "1")])
    model.forgotten("1")
    account(model, "START", "2")
    assert broken(model) == []


def test_of_an_array_no_more_tasks_run_than_its_throttle_says(model: Model) -> None:
    for task in range(4):
        model.submitted(f"1_{task}", JobSpec(0, 1.0, array=4, throttle=1))
    account(model, "START", "1_0")
    account(model, "COMPLETED", "1_0")
    account(model, "START", "1_1")
    assert broken(model) == []
    account(model, "START", "1_2", ending=("1_1",))
    assert broken(model) == [], "1_1 has ended, and is not off its nodes yet"
    account(model, "START", "1_3")
    assert broken(model) == [(Promise.WITHIN_LIMITS, "1_3")]


def test_no_user_has_more_gpus_than_the_limit(model: Model) -> None:
    model.limits = {"alice": 2}
    for job_id in ("1", "2", "3"):
        model.submitted(job_id, JobSpec(int(job_id), 1.0, gpus_per_node=2, user="alice" if job_id != "3" else "bob"))
    account(model, "START", "1", gpus=2)
    account(model, "START", "3", gpus=2)
    assert broken(model) == []
    account(model, "START", "2", gpus=2)
    assert broken(model) == [(Promise.WITHIN_LIMITS, "2")]
