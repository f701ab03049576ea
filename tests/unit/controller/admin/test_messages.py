"""A job that leads to an error of Headway's own hides no other job from the queue."""

from __future__ import annotations

import pytest

from controller.admin import messages
from tests.unit.controller.examples.build import job
from tests.unit.controller.examples.cycle_views import scene


def test_a_job_that_cannot_be_shown_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    read = messages.read_user_options

    def broken(comment: str) -> object:
        if comment == "bad":
            raise ArithmeticError("int too large")
        return read(comment)

    monkeypatch.setattr(messages, "read_user_options", broken)
    entries = list(messages.queue_entries(scene(job("1", comment="bad"), job("2")), 1_000_000.0))

    assert [entry.job_id for entry in entries] == ["1", "2"]
    assert entries[0].why == "cannot be shown: it has a value that Headway does not understand (ArithmeticError)"
    assert entries[0].user == entries[1].user == "ann"
    assert entries[1].name == "train"
