"""The view of one cycle: jobs by id, found without reading the whole snapshot for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.admin.explain.cycle_view import CycleView
from controller.slurm.model.job import SlurmJob
from tests.unit.controller.examples.build import job
from tests.unit.controller.examples.cycle_views import DL, undecided


class CountedJobs(tuple[SlurmJob, ...]):
    """Jobs of a snapshot that count how often they are read from the first on."""

    reads = 0

    def __iter__(self) -> Iterator[SlurmJob]:
        self.reads += 1
        return super().__iter__()


def view_of(*jobs: SlurmJob) -> tuple[CycleView, CountedJobs]:
    first = undecided(*jobs)
    counted = CountedJobs(jobs)
    observation = first.result.observation
    shown = replace(observation, snapshot=replace(observation.snapshot, jobs=counted))
    return CycleView(replace(first.result, observation=shown), first.ledger, DL), counted


def test_jobs_and_tasks_are_found_by_their_ids() -> None:
    view, _ = view_of(
        job("5", submit=200, user="new"), job("5", submit=100, user="old"),
        job("7_10"), job("7_9"), job("71_1"), job("7"),
    )  # fmt: skip
    found = view.find("5")
    assert found is not None and found.user == "new"  # Slurm gave the id to another job
    assert [task.key.job_id for task in view.tasks("7")] == ["7_9", "7_10"]
    assert (view.find("99"), view.tasks("99"), view.tasks("7_9"), view.tasks("5")) == (None, [], [], [])


def test_many_ids_need_two_readings_of_the_snapshot() -> None:
    view, counted = view_of(*(job(str(number)) for number in range(1, 50)))
    for number in range(1, 100):
        view.find(str(number))
        view.tasks(str(number))
    assert counted.reads == 2
