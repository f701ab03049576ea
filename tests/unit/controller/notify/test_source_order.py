"""The notifications of one job come in the order of its runs, each once, also when cycles break off between them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cycle.changes import JobChanges
from controller.notify.message import Notification
from controller.notify.source import NotificationSource
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from tests.unit.controller.examples.build import NOW_S, running, snapshot


class Scene:
    """A controller in front of the source; its cycles succeed when `good` is called."""

    def __init__(self) -> None:
        self.sent: list[Notification] = []
        self.unreported: set[str] = set()
        self.controller: Any = SimpleNamespace(
            preemptions=SimpleNamespace(open={}),
            last=None,
            facts=None,
            has_unreported=lambda job_id: job_id in self.unreported,
        )
        self.source = NotificationSource(self.controller, self.sent.append)

    def good(self, *jobs: SlurmJob, **changes: Any) -> None:
        """Let a cycle succeed that sees these jobs and reports these changes."""
        result: Any = SimpleNamespace(
            changes=JobChanges(**changes), observation=SimpleNamespace(snapshot=snapshot(*jobs))
        )
        self.controller.last = result
        self.unreported.clear()
        self.source.on_cycle(result)

    def words(self) -> list[str]:
        return [each.event.value for each in self.sent]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def run(restarts: int, node: str) -> SlurmJob:
    return replace(running("7", on={node: 2}, raw_id=7), restarts=restarts)


def ended(job: SlurmJob) -> SlurmJob:
    return replace(job, phase=Phase.ENDED, state="COMPLETED", end_time_s=NOW_S)


def stop(job: SlurmJob, number: int = 1) -> Preemption:
    return Preemption(
        number, "7", 7, job.key.submit_time_s, job.restarts, Cause.OPERATOR, "by hand", PreemptionMethod.CHECKPOINT,
        force=False, nodes=tuple(share.node for share in job.allocated), constraint=RelocationConstraint(),
        within_s=60.0, stage=Stage.STOPPED, asked_s=NOW_S, stopped_s=NOW_S,
    )  # fmt: skip


def test_a_stop_waits_until_the_start_of_its_run_is_reported(scene: Scene) -> None:
    first, second, third = run(0, "n1"), run(1, "n2"), run(2, "n2")
    scene.good(first, started=(first,))
    # given a stop, which is sent at once, and a second run on another node, which only broken cycles see
    scene.source.on_preemption(stop(first))
    assert scene.words() == ["started", "preempted"]
    scene.unreported.add("7")
    # when that run is stopped too, and a third one begins on the same node
    scene.source.on_preemption(stop(second, 2))
    assert scene.words() == ["started", "preempted"]
    scene.good(third, started=(second, third))
    # then its stop comes after its start, which is that of a job that was moved
    assert scene.words() == ["started", "preempted", "moved", "preempted", "resumed"]
    assert [share.node for share in scene.sent[3].job.allocated] == ["n2"]


def test_two_stops_while_cycles_break_off_are_both_sent(scene: Scene) -> None:
    first, second, third = run(0, "n1"), run(1, "n2"), run(2, "n1")
    scene.unreported.add("7")
    scene.source.on_preemption(stop(first))
    scene.source.on_preemption(stop(second, 2))
    scene.good(third, started=(first, second, third))
    assert scene.words() == ["started", "preempted", "moved", "preempted", "moved"]


def test_a_preemption_is_sent_once_although_an_earlier_run_of_the_job_has_ended(scene: Scene) -> None:
    first, second = run(0, "n1"), run(1, "n1")
    scene.good(first, started=(first,))
    scene.unreported.add("7")
    row = stop(second)
    scene.source.on_preemption(row)
    scene.good(second, started=(second,), ended=(ended(first),))
    assert scene.words() == ["started", "ended", "resumed", "preempted"]
    for stage in (Stage.STARTED, Stage.RESUMED):
        scene.source.on_preemption(replace(row, stage=stage))
    assert scene.words()[4:] == []
    # and once the job itself has ended, nothing of it is kept
    third = run(2, "n1")
    scene.good(ended(third), started=(third,), ended=(ended(third),))
    assert scene.words()[4:] == ["resumed", "ended"]
    assert not (scene.source._stops or scene.source._nodes_before or scene.source._waiting)


def test_a_job_that_only_broken_cycles_saw_is_preempted_although_slurm_has_forgotten_it(scene: Scene) -> None:
    first, second = run(0, "n1"), run(1, "n2")
    scene.good()
    scene.unreported.add("7")
    scene.source.on_preemption(stop(first))
    scene.good(started=(first, second), ended=(ended(second),))
    assert scene.words() == ["started", "preempted", "moved", "ended"]


def test_a_stop_that_is_called_off_does_not_forget_where_the_run_before_was(scene: Scene) -> None:
    first, second = run(0, "n1"), run(1, "n2")
    scene.good(first, started=(first,))
    scene.source.on_preemption(stop(first))
    scene.unreported.add("7")
    scene.source.on_preemption(replace(stop(second, 2), stage=Stage.CALLED_OFF, stopped_s=None))
    scene.good(second, started=(second,))
    assert scene.words() == ["started", "preempted", "moved"]


def test_a_stop_does_not_wait_for_what_is_unreported_of_other_jobs(scene: Scene) -> None:
    first = run(0, "n1")
    scene.good(first, started=(first,))
    scene.unreported.add("8")
    scene.source.on_preemption(stop(first))
    assert scene.words() == ["started", "preempted"]


def test_a_stop_that_waits_is_sent_when_the_controller_ends(scene: Scene) -> None:
    first = run(0, "n1")
    scene.good(first)
    scene.unreported.add("7")
    scene.source.on_preemption(stop(first))
    assert scene.words() == []
    scene.source.close()
    assert scene.words() == ["preempted"]
    scene.source.close()
    assert scene.words() == ["preempted"]
