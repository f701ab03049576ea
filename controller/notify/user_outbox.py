"""Queues of notifications for the receivers of users, which share a few threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from controller.notify import outbox
from controller.notify.message import Notification
from controller.notify.outbox import Deliver, Deliveries, Failing, attempt

THREADS = 4


class UserOutbox:
    """Receivers of users. Invariant: `put` never waits. Each user has a queue and at most one delivery under way, and users are
    served in turn; those whose last delivery failed never occupy all threads, and lose notifications before others do.
    """

    def __init__(self, name: str, deliver: Mapping[str, Deliver]) -> None:
        """`name` is a word for metrics and the log."""
        self.name = name
        self.deliveries = Deliveries()
        """Sum over the users."""
        self._deliver = dict(deliver)
        self._waiting: dict[str, deque[Notification]] = {user: deque() for user in deliver}
        """Bound: MOST_WAITING notifications of all users."""
        self._turn: deque[str] = deque()
        """Users with notifications that wait, and with no delivery under way, the next one first. Bound: the users."""
        self._under_way: set[str] = set()
        """Users with a delivery under way. Bound: `THREADS`."""
        self._failing = {user: Failing(f"{name}, {user}") for user in deliver}
        self._changed = threading.Condition()
        self._closing = False
        # Daemon threads: a delivery under way must not keep the controller from ending.
        self._threads = [
            threading.Thread(target=self._run, name=f"notify-{name}-{number}", daemon=True)
            for number in range(min(THREADS, len(self._deliver)))
        ]

    def start(self) -> None:
        """Start to deliver."""
        for thread in self._threads:
            thread.start()

    def put(self, notification: Notification) -> None:
        """Deliver it soon, if its user has a receiver. Where there is no room, the user with the most waiting loses the newest."""
        user = notification.job.user
        if user not in self._waiting:
            return
        with self._changed:
            self._waiting[user].append(notification)
            if sum(map(len, self._waiting.values())) > outbox.MOST_WAITING:
                max(self._waiting.values(), key=len).pop()
                self.deliveries.dropped += 1
            self._queue(user)

    def close(self) -> None:
        """End the threads. Deliveries under way get a moment; what still waits is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        end_s = time.monotonic() + outbox.CLOSE_S
        for thread in self._threads:
            thread.join(max(end_s - time.monotonic(), 0.0))

    def _run(self) -> None:
        while (following := self._next()) is not None:
            user, notification = following
            problem = attempt(self._deliver[user], notification)
            with self._changed:
                self.deliveries.count(problem)
                was_failing = self._failing[user].set(problem)
            # Without the lock, for which `put` would wait, and before the user's next delivery, which may be logged too.
            self._failing[user].log(problem, was_failing=was_failing)
            with self._changed:
                self._under_way.remove(user)
                self._queue(user)

    def _queue(self, user: str) -> None:
        """Let the user have a turn if something waits. To be called with the lock."""
        if self._waiting[user] and user not in self._under_way and user not in self._turn:
            self._turn.append(user)
        self._changed.notify_all()

    def _next(self) -> tuple[str, Notification] | None:
        """Return the user whose turn it is, and the notification to deliver now; None: the threads are to end."""
        with self._changed:
            while True:
                if self._closing:
                    return None
                for user in self._turn:
                    if self._waiting[user] and self._may_begin(user):
                        self._turn.remove(user)
                        self._under_way.add(user)
                        return user, self._waiting[user].popleft()
                self._changed.wait()

    def _may_begin(self, user: str) -> bool:
        """Return whether a thread is left for users whose last delivery did not fail."""
        failing = sum(self._failing[each].now for each in self._under_way)
        return not self._failing[user].now or failing < max(len(self._threads) - 1, 1)
