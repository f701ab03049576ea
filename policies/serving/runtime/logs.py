"""Log lines on standard error, for people or for programs.

Repeated events cannot fill a disk: a traceback is short and shows no values of variables, the same traceback is written
once a minute, and at most ten warnings or errors of one kind are written in a minute. Nor can a job: of other lines that name
one, at most 30 of one kind and job are written in a minute.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

_FRAMES = 12
"""Number of frames of a traceback that are shown: the last ones."""
_LINES = 60
_LINE_LENGTH = 400
_A_MINUTE = 10
"""Most warnings and errors of one kind, by the name of the event, that are written within a minute."""
_A_MINUTE_OF_A_JOB = 30
"""Most other lines of one kind and job: a job can cause some of them as often as it wants."""
_MINUTE_S = 60.0
_MOST_KINDS = 1024


def set_up_logging(level: str, form: Literal["console", "json"]) -> None:
    """Write one line per event: coloured on a terminal, plain in a file, or JSON."""
    last: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            Repeats(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        # Not cached, so that a reload can change the level.
        cache_logger_on_first_use=False,
    )


@dataclass(slots=True)
class _Kind:
    """Events of one kind within the last minute."""

    begun_s: float
    written: int = 0
    dropped: int = 0


class Repeats:
    """A structlog processor that drops repeated events, and renders exceptions.

    Invariant: at most `_A_MINUTE` warnings and errors of one kind are written in a minute, one traceback of each place, and
    `_A_MINUTE_OF_A_JOB` other lines of one kind with the same `job`. The next one that is written says how many were not
    (`unlogged`). Any thread may log, and a signal's handler while its thread does.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kinds: dict[str, _Kind] = {}
        """Bound: `_MOST_KINDS`."""
        self._of_jobs: dict[str, _Kind] = {}
        """Lines of jobs below warnings: in a table of their own, so that many jobs displace no warnings. Bound: `_MOST_KINDS`."""
        self._lock = threading.RLock()

    def __call__(self, _logger: object, method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        """Render the event's exception; raise DropEvent when there were too many."""
        error = _error_of(event.pop("exc_info", None))
        name = f"{method} {event.get('event')}"
        if method not in {"debug", "info"}:
            self._count(self._kinds, name, _A_MINUTE, event)
        elif "job" in event:
            self._count(self._of_jobs, f"{name} {event['job']}", _A_MINUTE_OF_A_JOB, event)
        if error is not None:
            with self._lock:
                seen = self._kind(self._kinds, f"{event.get('event')} {type(error).__name__} {_place(error)}")
                seen.written += 1
                first = seen.written == 1
            event["exception"] = short_traceback(error) if first else f"{_line(error)} (as before)"
        return event

    def _count(self, kinds: dict[str, _Kind], name: str, most: int, event: structlog.types.EventDict) -> None:
        """Count a line of that kind. Raise DropEvent if there were as many in this minute."""
        with self._lock:
            kind = self._kind(kinds, name)
            if kind.written >= most:
                kind.dropped += 1
                raise structlog.DropEvent
            if kind.dropped:
                event["unlogged"], kind.dropped = kind.dropped, 0
            kind.written += 1

    def _kind(self, kinds: dict[str, _Kind], name: str) -> _Kind:
        """Return the record of that kind; the caller holds the lock."""
        now_s = self._monotonic()
        kind = kinds.pop(name, None)
        if kind is None or now_s - kind.begun_s >= _MINUTE_S:
            kind = _Kind(now_s, dropped=0 if kind is None else kind.dropped)
        kinds[name] = kind
        while len(kinds) > _MOST_KINDS:
            kinds.pop(next(iter(kinds)), None)
        return kind


def short_traceback(error: BaseException) -> str:
    """Return the exception with the last frames that led to it, and what caused it; no values of variables."""
    text = "".join(traceback.TracebackException.from_exception(error, limit=-_FRAMES, max_group_depth=2).format())
    lines = [_clip(line) for line in text.rstrip().splitlines()]
    if len(lines) > _LINES:
        half = _LINES // 2
        lines = [*lines[:half], f"  ... {len(lines) - 2 * half} lines left out ...", *lines[-half:]]
    return "\n".join(lines)


def _error_of(given: object) -> BaseException | None:
    """Return the exception in `exc_info`: an exception, a triple, or True for the one that is handled now."""
    if isinstance(given, BaseException):
        return given
    if isinstance(given, tuple):
        return given[1] if len(given) > 1 and isinstance(given[1], BaseException) else None
    return sys.exc_info()[1] if given else None


def _place(error: BaseException) -> str:
    """Return file and line where it was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return "" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"


def _line(error: BaseException) -> str:
    return _clip(f"{type(error).__name__}: {error}".replace("\n", " "))


def _clip(line: str) -> str:
    return line if len(line) <= _LINE_LENGTH else f"{line[:_LINE_LENGTH]}..."
