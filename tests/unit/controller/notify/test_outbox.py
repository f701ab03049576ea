"""The queue of one receiver: it never keeps the controller waiting, and counts what happens."""

from __future__ import annotations

import threading
import time

import pytest

from controller.notify import outbox as module
from controller.notify.message import Notification
from controller.notify.outbox import Deliveries, DeliveryError, Outbox
from tests.unit.controller.notify.jobs import notification
from tests.unit.controller.notify.receiver import until


def test_a_receiver_that_hangs_costs_its_own_notifications_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    go_on = threading.Event()
    begun = threading.Event()

    def hang(_: Notification) -> None:
        begun.set()
        go_on.wait(120)

    outbox = Outbox("webhook", hang)
    outbox.start()
    outbox.put(notification())
    assert begun.wait(30)
    start = time.monotonic()
    for _ in range(110):
        outbox.put(notification())
    assert time.monotonic() - start < 60
    assert outbox.deliveries == Deliveries(sent=0, failed=0, dropped=100)
    go_on.set()
    until(lambda: outbox.deliveries.sent == 11, "those in the queue are delivered")
    outbox.close()


def test_closing_does_not_wait_for_a_delivery_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    go_on = threading.Event()
    delivered: list[Notification] = []

    def hang(found: Notification) -> None:
        delivered.append(found)
        go_on.wait(120)

    outbox = Outbox("webhook", hang)
    outbox.start()
    outbox.put(notification())
    until(lambda: delivered, "the first is under way")
    for _ in range(5):
        outbox.put(notification())
    start = time.monotonic()
    outbox.close()
    assert time.monotonic() - start < 60
    go_on.set()
    until(lambda: not outbox._thread.is_alive(), "the thread ends")
    assert len(delivered) == 1


def test_failures_are_counted_and_the_next_is_delivered() -> None:
    answers = iter([DeliveryError("no"), ZeroDivisionError("a defect"), None])

    def deliver(_: Notification) -> None:
        if (problem := next(answers)) is not None:
            raise problem

    outbox = Outbox("command", deliver)
    outbox.start()
    for _ in range(3):
        outbox.put(notification())
    until(lambda: outbox.deliveries == Deliveries(sent=1, failed=2, dropped=0), "two failures, one success")
    outbox.close()
