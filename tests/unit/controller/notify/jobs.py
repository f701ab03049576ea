"""Jobs and notifications for tests of receivers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.notify.message import JobEvent, Notification
from controller.slurm.model.job import NodeShare, SlurmJob
from tests.unit.controller.examples.build import job as example

SHARES = (NodeShare("n1", 4, 0, 8, 1000), NodeShare("n2", 4, 0, 8, 1000))


def notification(event: JobEvent = JobEvent.STARTED, detail: str = "", **changes: Any) -> Notification:
    """Return a notification about job 12 of alice, on two nodes."""
    return Notification(event, 1_700_000_000.5, "lab", some_job(**changes), detail)


def some_job(**changes: Any) -> SlurmJob:
    """Return that job."""
    fields: dict[str, Any] = {"user": "alice", "name": "train", "state": "RUNNING", "allocated": SHARES, **changes}
    return replace(example("12"), **fields)
