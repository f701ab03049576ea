"""Errands of a cycle: stops, with the jobs that cannot end meanwhile; and marks while the journal cannot be written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.base.errors import JournalError
from controller.cycle.steps.errands import JobMarks, PreemptionErrands
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import PIN_MARK
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from tests.unit.controller.notify.jobs import some_job


class FullDisk:
    """Verbs of a journal that cannot be written."""

    async def unmark(self, keys: list[JobKey], *_arguments: Any) -> dict[JobKey, Any]:
        """Raise JournalError if there is something to write."""
        if keys:
            raise JournalError("the journal cannot be written: the disk is full")
        return {}


async def test_jobs_of_which_no_mark_can_be_removed_for_months_are_forgotten_when_they_end() -> None:
    preemptions: Any = SimpleNamespace(open={}, called_off=SimpleNamespace(marked=()))
    verbs: Any = FullDisk()
    marks = JobMarks(verbs, preemptions)
    for number in range(10_000):
        started = [some_job(key=JobKey(str(number), number), phase=Phase.RUNNING, admin_comment=PIN_MARK)]
        marks.note_started(started)
        with pytest.raises(JournalError):
            await marks.clear_started({job.key: job for job in started})
        assert len(marks._started) <= 2


SAVED = Preemption(
    1, "5", 5, 0, 0, Cause.OPERATOR, "", PreemptionMethod.CHECKPOINT, force=True, nodes=("n1",),
    constraint=RelocationConstraint(), within_s=60.0, stage=Stage.SAVED, asked_s=1000.0,
)  # fmt: skip


class Stops:
    """Verbs that remember which jobs were stopped, and which of them as paused."""

    def __init__(self) -> None:
        self.stopped: set[JobKey] = set()
        self.paused: set[JobKey] = set()

    async def requeue_hold(self, why: Mapping[JobKey, str], *, paused: Collection[JobKey]) -> dict[JobKey, Any]:
        self.stopped, self.paused = set(why), set(paused)
        return {}


async def test_only_jobs_that_have_saved_are_stopped_as_paused() -> None:
    forced = replace(SAVED, number=2, job_id="6", raw_id=6, stage=Stage.ASKED)
    without_agents = replace(forced, number=3, job_id="7", raw_id=7, way=PreemptionMethod.NONE)
    rows = [SAVED, forced, without_agents]
    preemptions: Any = SimpleNamespace(orders=lambda: (rows, []), stopped=lambda *_: None, orders_over=lambda: None)
    verbs: Any = Stops()
    assert await PreemptionErrands(verbs, preemptions).run()
    assert (verbs.stopped, verbs.paused) == ({row.key for row in rows}, {SAVED.key})
