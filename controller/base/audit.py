"""The audit log: which user requested what, when, and with which outcome. It goes into the log (journald) and into a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controller.base.clock import Clock
from controller.base.json_lines import JsonLines

_FILE_BYTES = 4 << 20
_FILES = 5
"""The present file and four earlier ones: at most 20 MiB, which hold about 50,000 requests."""
_MODE = 0o640
_MAX_TEXT = 1000
_REFUSED_A_MINUTE = 10
"""Refused requests of one user that are recorded within a minute, so that no user pushes out the entries of others."""
_MOST_USERS = 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who made a request."""

    uid: int | None
    """None where the controller cannot know it: a signal tells no sender."""
    user: str = ""
    """Name of the user; empty where this machine does not know it."""


UNKNOWN = Caller(None)


class AuditLog:
    """Records requests. Invariant: entries are only added, a request never waits for or fails with its entry."""

    def __init__(self, clock: Clock, path: Path) -> None:
        """`path` is the file, mode 0640; its folder has to exist."""
        self._clock = clock
        self._file = JsonLines(path, max_bytes=_FILE_BYTES, files=_FILES, mode=_MODE)
        # The level of the settings does not apply: these lines are a record, not a diagnosis.
        self._log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
        self._refused: dict[int | None, tuple[float, int]] = {}
        """Begin of the minute, and refused requests within it, by uid; at most `_MOST_USERS`, the oldest are dropped.
        Bound: `_MOST_USERS`."""

    @property
    def trouble(self) -> str:
        """A sentence while the file cannot be written; empty when it can."""
        if not self._file.problem:
            return ""
        return (
            f"the audit log cannot be written to {self._file.path}: {self._file.problem}; requests are in the log only"
        )

    def record(
        self,
        caller: Caller,
        action: str,
        outcome: str,
        *,
        job_id: str = "",
        job_user: str = "",
        details: Mapping[str, Any] | None = None,
        refused: bool = False,
    ) -> None:
        """Record one request. `action` is a word for programs, `outcome` a text: "done", or why not."""
        left_out = self._left_out(caller.uid) if refused else 0
        if left_out is None:
            return
        now_s = self._clock.now()
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s)),
            "time_s": round(now_s, 3),
            "uid": caller.uid,
            "user": caller.user,
            "action": action,
            "job_id": job_id,
            "job_user": job_user,
            "details": {name: _short(value) for name, value in (details or {}).items()},
            "outcome": outcome[:_MAX_TEXT],
        }
        if left_out:
            entry["left_out"] = left_out
        self._file.append(entry)
        self._log.info("audit", **{name: value for name, value in entry.items() if name not in {"time", "time_s"}})

    def _left_out(self, uid: int | None) -> int | None:
        """Return how many refused requests of that user were not recorded before this one; None if this one is not either."""
        begun_s, number = self._refused.pop(uid, (-60.0, 0))
        now_s, left_out = self._clock.monotonic(), 0
        if now_s - begun_s >= 60.0:
            begun_s, number, left_out = now_s, 0, max(number - _REFUSED_A_MINUTE, 0)
        self._refused[uid] = begun_s, number + 1
        while len(self._refused) > _MOST_USERS:
            del self._refused[next(iter(self._refused))]
        return left_out if number < _REFUSED_A_MINUTE else None


def _short(value: Any) -> Any:
    """Return the value as JSON has it; long texts are cut."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:100]]
    return str(value)[:_MAX_TEXT]
