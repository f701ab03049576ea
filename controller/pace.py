"""How often slurmctld may be asked for everything: once per interval on average, and one reading ahead of its time.

Most readings can wait for their turn. What cannot is a user's new job: it should not wait for a second because the
controller happened to look at the clock a moment before. So one reading is always kept in reserve for it; once taken, it is
saved up again before the next reading that can wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

_GAP_IN_BURST_S = 0.025
"""Jobs that follow each other so closely are submitted by a loop: more will come."""
_MOST_GAPS = 20
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


async def let_burst_end(submitted: Callable[[], int], sleep: Callable[[float], Awaitable[None]]) -> None:
    """While one job after the other is submitted, wait, for half a second at most: seen and placed together they start sooner.

    `submitted` is how many jobs have been announced so far. One alone is no burst, and does not wait.
    """
    seen = 1
    for _ in range(_MOST_GAPS):
        now = submitted()
        if now <= seen:
            return
        seen = now
        await sleep(_GAP_IN_BURST_S)
