"""A bounded queue of notifications for one receiver, emptied by a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from controller.notify.message import Notification

log = structlog.get_logger(__name__)

MOST_WAITING = 1000
_CLOSE_S = 2.0

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


class Outbox:
    """One receiver. Invariant: `put` never waits; a receiver that hangs costs its own notifications and nothing else."""

    def __init__(self, name: str, deliver: Deliver, wants: Callable[[Notification], bool] = lambda _: True) -> None:
        """`name` is a word for metrics and the log."""
        self.name = name
        self.deliveries = Deliveries()
        self._deliver = deliver
        self._wants = wants
        self._waiting: queue.Queue[Notification | None] = queue.Queue(MOST_WAITING)
        self._closing = threading.Event()
        self._failing = False
        # A daemon thread: a delivery under way must not keep the controller from ending.
        self._thread = threading.Thread(target=self._run, name=f"notify-{name}", daemon=True)

    def start(self) -> None:
        """Start to deliver."""
        self._thread.start()

    def put(self, notification: Notification) -> None:
        """Deliver it soon, if the receiver wants it and the queue has room."""
        if not self._wants(notification):
            return
        try:
            self._waiting.put_nowait(notification)
        except queue.Full:
            self.deliveries.dropped += 1

    def close(self) -> None:
        """End the thread. A delivery under way gets a moment; what still waits is dropped."""
        self._closing.set()
        with suppress(queue.Full):  # then the thread has work, after which it sees that it must end
            self._waiting.put_nowait(None)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (notification := self._waiting.get()) is not None and not self._closing.is_set():
            try:
                self._deliver(notification)
            except DeliveryError as error:
                self._note_failure(str(error))
            except Exception as error:  # noqa: BLE001 - a defect in one delivery must not end the thread, and all later ones
                self._note_failure(f"{type(error).__name__}: {error}")
            else:
                self.deliveries.sent += 1
                if self._failing:
                    log.info("notifications_work_again", receiver=self.name)
                self._failing = False

    def _note_failure(self, problem: str) -> None:
        self.deliveries.failed += 1
        if not self._failing:
            log.warning("notification_failed", receiver=self.name, problem=problem)
        self._failing = True
