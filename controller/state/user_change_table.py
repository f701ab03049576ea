"""The journal's table of changes that users have requested for jobs of their own, so that a restart renews no user's budget."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from controller.state.typed_rows import well_typed

USER_CHANGE_SCHEMA = """
-- Bound: an hour of the changes that the budgets of users permit.
CREATE TABLE IF NOT EXISTS user_change (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time_s REAL NOT NULL, uid INTEGER NOT NULL, action TEXT NOT NULL,
    job_id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS user_change_uid ON user_change (uid, time_s);
"""
KEPT_S = 3600.0
"""Time for which a change counts, in seconds. Rows outside it are dropped with the next one, so the budgets bound their number."""


class UserChangeTable:
    """One row for each change. Times are Unix times on the controller's clock."""

    def __init__(
        self,
        read: Callable[[str, Sequence[object]], list[tuple[Any, ...]]],
        writing: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._read = read
        self._writing = writing

    def add(self, uid: int, time_s: float, action: str, job_id: str) -> int:
        """Record a change, and return the number of its row. Raises JournalError."""
        with self._writing() as db:
            db.execute("DELETE FROM user_change WHERE time_s NOT BETWEEN ? AND ?", (time_s - KEPT_S, time_s + KEPT_S))
            row = db.execute(
                "INSERT INTO user_change (time_s, uid, action, job_id) VALUES (?, ?, ?, ?)",
                (time_s, uid, action, job_id),
            )
        return int(row.lastrowid or 0)

    def remove(self, number: int) -> None:
        """Remove a change that was refused after all. Raises JournalError."""
        with self._writing() as db:
            db.execute("DELETE FROM user_change WHERE number = ?", (number,))

    def bring_forward(self, now_s: float) -> None:
        """Date changes of the future now: they were recorded while the clock was ahead. So they count for an hour from here on, and
        neither for ever nor not at all. Raises JournalError."""
        if self._read("SELECT 1 FROM user_change WHERE time_s > ? LIMIT 1", (now_s,)):
            with self._writing() as db:
                db.execute("UPDATE user_change SET time_s = ? WHERE time_s > ?", (now_s, now_s))

    def times_s(self, uid: int, since_s: float) -> list[float]:
        """Return the times of the user's changes since then, oldest first. Raises JournalError.

        Changes from more than an hour after the present do not count: the clock was set back, by years perhaps.
        """
        rows = self._read(
            "SELECT time_s FROM user_change WHERE uid = ? AND time_s > ? AND time_s <= ? ORDER BY time_s",
            (uid, since_s, since_s + 2 * KEPT_S),
        )
        return [float(time_s) for (time_s,) in well_typed(rows, "number")]
