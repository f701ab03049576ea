"""Events for users and operators: a bounded list of the newest, a file of them, and a stream to each present listener."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.base.clock import Clock
from controller.base.json_lines import JsonLines
from policies.documents import is_number

KEPT = 20_000
"""Number of events that can be asked for: about 10 MB of memory."""
_BACKLOG = 1000
_FILE_BYTES = 4 << 20
_FILES = 2
"""The present file of events and the one before: at most 8 MiB, which hold about `KEPT` events."""
_LATEST_S = 253_402_300_799.0
"""End of the year 9999, the last that has a date."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event. `kind` is one of placed, started, ended, held, released, decision, fallback, policy, preempt, advice, error."""

    time_s: float
    kind: str
    job_id: str
    """Empty when the event is not about one job."""
    text: str
    user: str = ""
    """The job's user; empty when the event is not about one job, or the user is not known."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A choice of events. Times are in seconds since the Unix epoch."""

    since_s: float = -math.inf
    until_s: float = math.inf
    job_id: str = ""
    """Events of this job, of all tasks of this array, or (empty) of everything."""

    def has(self, event: LoggedEvent) -> bool:
        """Return whether the event is one of them."""
        if not self.since_s <= event.time_s < self.until_s:
            return False
        return not self.job_id or event.job_id == self.job_id or event.job_id.startswith(f"{self.job_id}_")


def events_file(path: Path) -> JsonLines:
    """Return the file of a controller's events, by which a restarted controller knows the former ones."""
    return JsonLines(path, max_bytes=_FILE_BYTES, files=_FILES, mode=0o600)


class EventLog:
    """The newest events. Invariant: adding never waits for a listener; one that falls a thousand events behind loses the oldest."""

    def __init__(self, clock: Clock, file: JsonLines | None = None, *, kept: int = KEPT) -> None:
        """Read the newest events of `file`, and write later ones into it; None: they are lost when the program ends.

        `kept`: number of events in memory.
        """
        self._clock = clock
        self._file = file
        self._recent: deque[LoggedEvent] = deque(maxlen=kept)
        self._listeners: set[asyncio.Queue[LoggedEvent]] = set()
        """Queues of the calls that watch events. Bound: these calls, which the Admin service limits."""
        self._read_users: Callable[[], Mapping[str, str]] = dict
        self._users: Mapping[str, str] | None = None
        if file is not None:
            self._recent.extend(found for line in file.read() if (found := _decode(line)) is not None)

    @property
    def trouble(self) -> str:
        """A sentence while events cannot be written; empty when they can."""
        if self._file is None or not self._file.problem:
            return ""
        return f"events cannot be written to {self._file.path}: {self._file.problem}; a restart forgets them"

    def know(self, users: Callable[[], Mapping[str, str]]) -> None:
        """Take the users of jobs, by job id, from there; it is called when the next event is about a job."""
        self._read_users, self._users = users, None

    def _user_of(self, job_id: str) -> str:
        if not job_id:
            return ""
        if self._users is None:
            self._users = self._read_users()
        return self._users.get(job_id, "")

    def add(self, kind: str, job_id: str, text: str) -> None:
        """Add an event, and send it to all listeners."""
        event = LoggedEvent(self._clock.now(), kind, job_id, text, self._user_of(job_id))
        self._recent.append(event)
        if self._file is not None:
            self._file.append(asdict(event))
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def recent(self, job_id: str | None = None) -> list[LoggedEvent]:
        """Return the newest events of one job, or of all jobs, oldest first."""
        return [event for event in self._recent if job_id is None or event.job_id == job_id]

    def past(self, wanted: Wanted) -> list[LoggedEvent]:
        """Return those of the newest events that are wanted, oldest first."""
        return [event for event in self._recent if wanted.has(event)]

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[LoggedEvent]]:
        """Give a queue that receives the events from now on."""
        queue: asyncio.Queue[LoggedEvent] = asyncio.Queue(_BACKLOG)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)


def _decode(line: dict[str, Any]) -> LoggedEvent | None:
    """Return the event of a line of the file; None when it is none."""
    match line:
        case {"time_s": time_s, "kind": str(kind), "job_id": str(job_id), "text": str(text)} if is_number(
            time_s, 0.0, _LATEST_S
        ):
            user = line.get("user", "")  # files of earlier versions have none
            return LoggedEvent(float(time_s), kind, job_id, text, user if isinstance(user, str) else "")
    return None
