"""Work row by row, for several jobs: an error in one row affects only that row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import structlog

log = structlog.get_logger(__name__)

_LOG_EVERY_S = 60.0
_MAX_PROBLEM_CHARS = 200
_Row = TypeVar("_Row")
_Made = TypeVar("_Made")


class RowGuard:
    """Invariant: after an error in a row, the other rows are still made; the log grows by at most one line a minute."""

    def __init__(self, what: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`what` names the rows in the log."""
        self.dropped = 0
        """Number of rows dropped so far."""
        self._what = what
        self._monotonic = monotonic
        self._logged_s: float | None = None

    def each(self, rows: Iterable[_Row], make: Callable[[_Row], _Made]) -> Iterator[tuple[_Row, _Made]]:
        """Yield each row with the result of `make`; a row for which it fails is dropped, counted and logged."""
        for row in rows:
            try:
                made = make(row)
            except Exception as error:  # noqa: BLE001 - data of jobs may cause it, and other jobs rely on the agent
                self._drop(row, error)
            else:
                yield row, made

    def _drop(self, row: object, error: Exception) -> None:
        self.dropped += 1
        now_s = self._monotonic()
        if self._logged_s is None or now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            problem = f"{type(error).__name__}: {error}"[:_MAX_PROBLEM_CHARS]
            job = getattr(row, "job_id", row if isinstance(row, int) else None)
            log.error("row_dropped", what=self._what, job=job, problem=problem, dropped=self.dropped)
