"""Work that is done row by row, for several jobs: an error of one row costs that row, and no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import structlog

log = structlog.get_logger(__name__)

_LOG_EVERY_S = 60.0
_MOST_WORDS = 200
_Row = TypeVar("_Row")
_Made = TypeVar("_Made")


class RowGuard:
    """Invariant: whatever a row makes go wrong, the rows behind it have their turn; the log grows by a line a minute at most."""

    def __init__(self, what: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`what` names the rows in the log."""
        self.dropped = 0
        """Rows that were dropped so far."""
        self._what = what
        self._monotonic = monotonic
        self._logged_s: float | None = None

    def each(self, rows: Iterable[_Row], make: Callable[[_Row], _Made]) -> Iterator[tuple[_Row, _Made]]:
        """Yield each row with what is made of it; a row of which nothing can be made is dropped, counted and logged."""
        for row in rows:
            try:
                made = make(row)
            except Exception as error:  # noqa: BLE001 - what jobs say has a part in it, and other jobs rely on the agent
                self._drop(row, error)
            else:
                yield row, made

    def _drop(self, row: object, error: Exception) -> None:
        self.dropped += 1
        now_s = self._monotonic()
        if self._logged_s is None or now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            problem = f"{type(error).__name__}: {error}"[:_MOST_WORDS]
            job = getattr(row, "job_id", row if isinstance(row, int) else None)
            log.error("row_dropped", what=self._what, job=job, problem=problem, dropped=self.dropped)
