"""A bounded queue of notifications for one receiver, emptied by a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from controller.notify.message import Notification

log = structlog.get_logger(__name__)

MOST_WAITING = 1000
CLOSE_S = 2.0
"""Longest wait for deliveries under way at the end, seconds."""

Deliver = Callable[[Notification], None]
"""Delivers one notification within its time limit. Raises DeliveryError."""


class DeliveryError(Exception):
    """A receiver did not accept a notification. The text names the receiver without secrets, and the reason."""


@dataclass(slots=True)
class Deliveries:
    """Notifications of one receiver since the start."""

    sent: int = 0
    failed: int = 0
    """Those that the receiver did not accept in time. They are not repeated."""
    dropped: int = 0
    """Those for which the queue had no room."""

    def count(self, problem: str | None) -> None:
        """Count a delivery. `problem`: why it failed; None: it did not."""
        if problem is None:
            self.sent += 1
        else:
            self.failed += 1


class Receivers(Protocol):
    """One or more receivers that are counted together."""

    name: str
    deliveries: Deliveries

    def start(self) -> None:
        """Start to deliver."""

    def put(self, notification: Notification) -> None:
        """Deliver it soon, if it is wanted and there is room. Never waits."""

    def close(self) -> None:
        """End within a moment."""


class Failing:
    """State of one receiver. Invariant: the log has the first failure in a row, and the next success."""

    def __init__(self, receiver: str) -> None:
        self.now = False
        """True if the last delivery failed."""
        self._receiver = receiver

    def note(self, problem: str | None) -> None:
        """Note a delivery. `problem`: why it failed; None: it did not."""
        self.log(problem, was_failing=self.set(problem))

    def set(self, problem: str | None) -> bool:
        """Note a delivery, and leave the log to the caller. Returns whether the one before it had failed."""
        before, self.now = self.now, problem is not None
        return before

    def log(self, problem: str | None, *, was_failing: bool) -> None:
        """Log a delivery if the one before it had another result."""
        if problem is not None and not was_failing:
            log.warning("notification_failed", receiver=self._receiver, problem=problem)
        elif problem is None and was_failing:
            log.info("notifications_work_again", receiver=self._receiver)


def attempt(deliver: Deliver, notification: Notification) -> str | None:
    """Deliver a notification. Returns why that failed; None if it did not."""
    try:
        deliver(notification)
    except DeliveryError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a defect in one delivery must not end the thread, and all later ones
        return f"{type(error).__name__}: {error}"
    return None


class Outbox:
    """One receiver. Invariant: `put` never waits; a receiver that hangs costs its own notifications and nothing else."""

    def __init__(self, name: str, deliver: Deliver) -> None:
        """`name` is a word for metrics and the log."""
        self.name = name
        self.deliveries = Deliveries()
        self._deliver = deliver
        self._waiting: queue.Queue[Notification | None] = queue.Queue(MOST_WAITING)
        self._closing = threading.Event()
        self._failing = Failing(name)
        # A daemon thread: a delivery under way must not keep the controller from ending.
        self._thread = threading.Thread(target=self._run, name=f"notify-{name}", daemon=True)

    def start(self) -> None:
        """Start to deliver."""
        self._thread.start()

    def put(self, notification: Notification) -> None:
        """Deliver it soon, if the queue has room."""
        try:
            self._waiting.put_nowait(notification)
        except queue.Full:
            self.deliveries.dropped += 1

    def close(self) -> None:
        """End the thread. A delivery under way gets a moment; what still waits is dropped."""
        self._closing.set()
        with suppress(queue.Full):  # then the thread has work, after which it sees that it must end
            self._waiting.put_nowait(None)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (notification := self._waiting.get()) is not None and not self._closing.is_set():
            problem = attempt(self._deliver, notification)
            self.deliveries.count(problem)
            self._failing.note(problem)
