"""How often slurmctld may be asked for everything: once per interval on average, and one reading ahead of its time.

Most readings can wait for their turn. What cannot is a user's new job: it should not wait for a second because the
controller happened to look at the clock a moment before. So one reading is always kept in reserve for it; once taken, it is
saved up again before the next reading that can wait.
"""

from __future__ import annotations

_MOST = 2.0
"""Readings that can be saved up: one that is due, one in reserve."""


class Pace:
    """Invariant: in any stretch of n intervals there are at most n + 2 readings, however often somebody is in a hurry."""

    def __init__(self, now_s: float) -> None:
        self._saved = _MOST
        self._at_s = now_s

    def taken(self, now_s: float, interval_s: float) -> None:
        """A reading has begun."""
        self._saved = max(self._saved_at(now_s, interval_s) - 1.0, 0.0)
        self._at_s = now_s

    def wait_s(self, now_s: float, interval_s: float, *, hurry: bool) -> float:
        """How long to wait until the next reading is due, or until there is at least the reserve."""
        missing = (1.0 if hurry else _MOST) - self._saved_at(now_s, interval_s)
        return max(missing * interval_s, 0.0)

    def _saved_at(self, now_s: float, interval_s: float) -> float:
        # A clock that is set back saves nothing up.
        return min(self._saved + max(now_s - self._at_s, 0.0) / interval_s, _MOST)
