"""Each failure of a listener counts; each problem of it is shown once."""

from __future__ import annotations

import pytest

from controller.base import listener_failures
from controller.base.clock import VirtualClock
from controller.base.events import EventLog
from controller.base.listener_failures import ListenerFailures


def one() -> None:
    """A listener."""


def other() -> None:
    """Another listener."""


def test_each_problem_of_a_listener_is_shown_once_and_counted_each_time() -> None:
    events, counted = EventLog(VirtualClock()), list[str]()
    failures = ListenerFailures(events, counted.append)
    for listener, error in ((one, ValueError("a")), (one, ValueError("b")), (other, ValueError("a"))) * 3:
        failures.note(listener, error)
    shown = [event.text for event in events.recent()]
    assert [text.partition(" (")[2] for text in shown] == [
        "one): ValueError: a",
        "one): ValueError: b",
        "other): ValueError: a",
    ]
    assert counted == shown * 3


def test_problems_that_differ_each_time_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_failures, "_MOST_KNOWN", 3)
    failures = ListenerFailures(EventLog(VirtualClock()))
    for number in range(10):
        failures.note(one, ValueError(str(number)))
        assert len(failures._known) <= 3
