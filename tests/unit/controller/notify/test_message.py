"""The JSON of a notification, which receivers rely on."""

from __future__ import annotations

import json

import pytest

from controller.notify.message import JobEvent
from tests.unit.controller.notify.jobs import notification


def test_the_body_has_the_facts_and_a_sentence() -> None:
    assert json.loads(notification().body()) == {
        "version": 1,
        "event": "started",
        "time": "2023-11-14T22:13:20Z",
        "time_s": 1_700_000_000.5,
        "cluster": "lab",
        "job_id": "12",
        "job_name": "train",
        "user": "alice",
        "partition": "dl",
        "state": "RUNNING",
        "nodes": "n[1-2]",
        "gpus": 8,
        "text": "Job 12 (train) of alice has started on n[1-2] with 8 GPUs",
    }


@pytest.mark.parametrize(
    ("event", "detail", "text"),
    [
        (JobEvent.PREEMPTED, "a shorter job waits", "was stopped, and is placed again: a shorter job waits"),
        (JobEvent.RESUMED, "", "runs again on n[1-2] with 8 GPUs"),
        (JobEvent.MOVED, "", "was moved, and runs on n[1-2] with 8 GPUs"),
        (JobEvent.ENDED, "", "has ended: RUNNING"),
    ],
)
def test_each_event_has_its_sentence(event: JobEvent, detail: str, text: str) -> None:
    assert json.loads(notification(event, detail).body())["text"] == f"Job 12 (train) of alice {text}"


def test_a_name_of_a_job_cannot_leave_its_string() -> None:
    name = '"}\n$(touch /tmp/x); `id`\r\nX-Header: 1 \x1b[31m' + "y" * 5000

    body = notification(name=name).body()

    assert b"\n" not in body
    assert b"\x1b" not in body
    assert len(body) < 2000
    assert json.loads(body)["job_name"].startswith('"}')
