"""Errands of a cycle while the journal cannot be written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.base.errors import JournalError
from controller.cycle.steps.errands import JobMarks
from controller.slurm.client import PIN_MARK, JobKey, Phase
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
