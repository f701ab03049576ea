"""A job that leads to an error of Headway's own is left to Slurm, and costs the others nothing."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from controller.observe import classification, job_row
from controller.observe import observer as observer_module
from controller.observe.dependency import Dependencies
from controller.observe.observer import Observation, Observer
from controller.observe.role import Role
from controller.slurm.model.job import SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.state.ledger import Ledger
from policies.wire.messages import serialize_state
from tests.unit.controller.examples.build import job, running, snapshot


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> Observer:
    """An observer with a defect: it cannot read one comment."""
    read = job_row.read_user_options

    def broken(comment: str) -> object:
        if comment == "bad":
            raise ArithmeticError("int too large to convert to float")
        return read(comment)

    monkeypatch.setattr(job_row, "read_user_options", broken)
    return Observer()


def observed(observer: Observer, *jobs: SlurmJob) -> Observation:
    return observer.observe(snapshot(*jobs), Ledger(), frozenset({"dl"}))


def test_a_waiting_job_is_given_to_slurm_and_the_others_are_placed(observer: Observer) -> None:
    bad, good = job("1", comment="bad"), job("2")
    with capture_logs() as logs:
        found = [observed(observer, bad, good) for _ in range(3)][-1]

    assert [row.key.job_id for row in found.rows] == ["2"]
    assert found.to_yield == {bad.key: "has a value that Headway does not understand (ArithmeticError)"}
    assert [line["event"] for line in logs] == ["job_not_understood"], "once, until the job changes"


def test_a_running_job_keeps_its_gpus(observer: Observer) -> None:
    bad, good = running("1", on={"n1": 2, "n2": 3}, comment="bad"), job("2")
    found = observed(observer, bad, good)

    assert [row.key.job_id for row in found.rows] == ["1", "2"]
    assert found.state.jobs.placement_gpus.tolist() == [2, 3]
    assert found.standings[bad.key].role is Role.RUNNING
    assert bad.key in found.only_slurm, "it is neither moved nor resized"
    assert serialize_state(found.state)


@pytest.fixture
def no_dependencies(monkeypatch: pytest.MonkeyPatch) -> Observer:
    """An observer with a defect: it cannot evaluate dependencies, nor tell the standing of a job that is not held."""

    def broken(*_: object) -> object:
        raise ArithmeticError("a number that is none")

    monkeypatch.setattr(Dependencies, "of", broken)
    monkeypatch.setattr(classification, "standing", broken)
    return Observer()


def test_a_job_with_a_dependency_that_leads_to_an_error_is_given_to_slurm(no_dependencies: Observer) -> None:
    bad, good = job("1", dependency="afterok:7"), job("2")
    with capture_logs() as logs:
        found = [observed(no_dependencies, bad, good) for _ in range(3)][-1]

    assert [line["event"] for line in logs] == ["job_not_understood"], "once, and not in every cycle"
    assert [row.key.job_id for row in found.rows] == ["2"]
    assert found.to_yield == {bad.key: "has a value that Headway does not understand (ArithmeticError)"}


def test_a_job_that_is_not_ours_to_release_is_left_as_it_is(no_dependencies: Observer) -> None:
    free, theirs = job("1", held=False), job("3", restarts=1, admin_comment=f"{HOLD_MARK} {USER_HOLD_MARK}")
    found = observed(no_dependencies, free, job("2"), theirs)

    assert [row.key.job_id for row in found.rows] == ["2"]
    assert not found.to_yield
    assert not found.to_adopt
    assert found.standings[free.key].role is Role.YIELDED


def test_policies_decide_without_columns_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise ArithmeticError("a number that is none")

    for name in ("with_gpu_layouts", "with_slurm_order"):
        monkeypatch.setattr(observer_module, name, broken)
    monkeypatch.setattr(observer_module.ModelColumns, "added", broken)
    found = observed(Observer(), job("1"), job("2"))
    assert [row.key.job_id for row in found.rows] == ["1", "2"]
    assert serialize_state(found.state)
