"""The queues of users' receivers: one that hangs costs its own user's notifications, and those of no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from controller.notify import outbox as module
from controller.notify.message import Notification
from controller.notify.outbox import Deliver, Deliveries, DeliveryError
from controller.notify.user_outbox import THREADS, UserOutbox
from tests.unit.controller.notify.jobs import notification
from tests.unit.controller.notify.receiver import until


class Hanging:
    """Receivers that fail one delivery at a time, when `let_fail` is called, and one that works."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.arrived: list[str] = []
        self._go_on = threading.Semaphore(0)

    def hang(self, found: Notification) -> None:
        self.begun.append(found.job.user)
        self._go_on.acquire(timeout=120)
        raise DeliveryError("no answer")

    def work(self, found: Notification) -> None:
        self.arrived.append(found.job.name)

    def let_fail(self, count: int = 1) -> None:
        self._go_on.release(count)


@contextmanager
def started(**deliver: Deliver) -> Iterator[UserOutbox]:
    found = UserOutbox("users", deliver)
    found.start()
    try:
        yield found
    finally:
        found.close()


def test_a_receiver_that_hangs_delays_no_other_user() -> None:
    world = Hanging()
    with started(alice=world.hang, bob=world.work) as found:
        for _ in range(50):
            found.put(notification(user="alice"))
        until(lambda: world.begun, "that of alice hangs")
        for number in range(3):
            found.put(notification(user="bob", name=f"job {number}"))
        until(lambda: len(world.arrived) == 3, "those of bob arrive meanwhile")
        assert (world.arrived, world.begun) == (["job 0", "job 1", "job 2"], ["alice"])
        world.let_fail(50)


def test_however_many_hang_after_a_failure_each_one_thread_is_left() -> None:
    world = Hanging()
    failed: set[str] = set()

    def fail_then_hang(found: Notification) -> None:
        if found.job.user in failed:
            world.hang(found)
        failed.add(found.job.user)
        raise DeliveryError("refused")

    hanging = [f"user{number}" for number in range(2 * THREADS)]
    with started(bob=world.work, **dict.fromkeys(hanging, fail_then_hang)) as found:
        # when each of them has failed once, and then hangs
        for user in hanging * 2:
            found.put(notification(user=user))
        until(lambda: len(failed) == len(hanging) and len(world.begun) == THREADS - 1, "as many hang as may")
        found.put(notification(user="bob"))
        until(lambda: world.arrived, "that of bob arrives")
        assert len(world.begun) == THREADS - 1
        world.let_fail(len(hanging))


def test_the_user_with_the_most_notifications_loses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    world = Hanging()
    with started(alice=world.hang, bob=world.work) as found:
        found.put(notification(user="alice"))
        until(lambda: world.begun, "the first one of alice is under way")
        for _ in range(30):
            found.put(notification(user="alice"))
        assert found.deliveries == Deliveries(sent=0, failed=0, dropped=20)
        found.put(notification(user="bob"))
        until(lambda: world.arrived, "that of bob arrives")
        world.let_fail(100)


def test_the_log_names_the_user_whose_receiver_fails() -> None:
    world, failed = Hanging(), threading.Event()

    def fail_once(_: Notification) -> None:
        if not failed.is_set():
            failed.set()
            raise DeliveryError("no")

    with capture_logs() as lines, started(alice=fail_once, bob=world.work) as found:
        found.put(notification(user="alice"))
        found.put(notification(user="bob"))
        until(lambda: (found.deliveries.sent, found.deliveries.failed) == (1, 1), "both are counted")
        found.put(notification(user="alice"))
        until(lambda: found.deliveries.sent == 2, "that of alice arrives")
        found.put(notification(user="carol"))  # has none
    assert [(line["event"], line["receiver"]) for line in lines] == [
        ("notification_failed", "users, alice"),
        ("notifications_work_again", "users, alice"),
    ]


class HangingLog:
    """A log whose file system hangs."""

    def __init__(self) -> None:
        self.hangs, self.go_on = threading.Event(), threading.Event()

    def warning(self, *_: object, **__: object) -> None:
        self.hangs.set()
        self.go_on.wait(timeout=120)


def test_a_log_that_hangs_delays_no_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    log, world = HangingLog(), Hanging()
    monkeypatch.setattr(module, "log", log)
    world.let_fail()
    with started(alice=world.hang, bob=world.work) as found:
        found.put(notification(user="alice"))
        assert log.hangs.wait(timeout=60)
        putting = threading.Thread(target=found.put, args=(notification(user="bob", name="job 1"),), daemon=True)
        putting.start()
        try:
            until(lambda: world.arrived, "that of bob arrives meanwhile")
        finally:
            log.go_on.set()
        assert world.arrived == ["job 1"]


def test_closing_does_not_wait_for_deliveries_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    world = Hanging()
    with started(alice=world.hang, bob=world.hang) as found:
        for user in ("alice", "bob", "alice"):
            found.put(notification(user=user))
        until(lambda: len(world.begun) == 2, "two are under way")
    world.let_fail(2)
    until(lambda: not any(thread.is_alive() for thread in found._threads), "the threads end")
    assert len(world.begun) == 2
