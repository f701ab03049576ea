"""Events for users and operators: a bounded list of the newest, and a stream to each present listener."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controller.base.clock import Clock

_KEPT = 500
_BACKLOG = 1000


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event. `kind` is one of placed, started, ended, held, released, decision, fallback, policy, preempt, advice, error."""

    time_s: float
    kind: str
    job_id: str
    """Empty when the event is not about one job."""
    text: str


class EventLog:
    """The newest events. Invariant: adding never waits; a listener that falls a thousand events behind loses the oldest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[LoggedEvent] = deque(maxlen=_KEPT)
        self._listeners: set[asyncio.Queue[LoggedEvent]] = set()

    def add(self, kind: str, job_id: str, text: str) -> None:
        """Add an event, and send it to all listeners."""
        event = LoggedEvent(self._clock.now(), kind, job_id, text)
        self._recent.append(event)
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def recent(self, job_id: str | None = None) -> list[LoggedEvent]:
        """Return the newest events of one job, or of all jobs, oldest first."""
        return [event for event in self._recent if job_id is None or event.job_id == job_id]

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[LoggedEvent]]:
        """Give a queue that receives the events from now on."""
        queue: asyncio.Queue[LoggedEvent] = asyncio.Queue(_BACKLOG)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)
