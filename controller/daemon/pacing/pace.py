"""Times of readings: slurmctld never gets two bulk queries in one interval, nor one in the middle of a burst of submissions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_GAP_IN_BURST_S = 0.025
"""Longest gap between two submissions of one burst."""
_MOST_GAPS = 20


class Pace:
    """Invariant: two readings never begin less than an interval apart, however urgent the next one is."""

    def __init__(self) -> None:
        self._taken_s: float | None = None

    def taken(self, now_s: float) -> None:
        """Note that a reading begins at this time."""
        self._taken_s = now_s

    def wait_s(self, now_s: float, apart_s: float) -> float:
        """Return the time until the next reading may begin, `apart_s` after the last. Times are on the monotonic clock."""
        if self._taken_s is None:
            return 0.0
        return apart_s - min(max(now_s - self._taken_s, 0.0), apart_s)


_TURNS = 3
"""Turns of the event loop that a due task needs: its timer, the end of its sleep, and the task itself."""


async def let_others_run() -> None:
    """Let due tasks run, above all the heartbeat, between two pieces of work that occupy the process."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def let_burst_end(submitted: Callable[[], int], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Wait while one job after the other is submitted, at most half a second: jobs that are placed together start sooner.

    `submitted` returns the number of jobs announced so far. A single job is no burst, and does not wait.
    """
    seen = 1
    for _ in range(_MOST_GAPS):
        now = submitted()
        if now <= seen:
            return
        seen = now
        await sleep(_GAP_IN_BURST_S)
