"""When to look at Slurm next: never so soon that slurmctld sees more than one bulk query an interval, and not amid a burst."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

_GAP_IN_BURST_S = 0.025
"""Jobs that follow each other so closely are submitted by a loop: more will come."""
_MOST_GAPS = 20


_LEISURE = 3.0
"""Intervals between two readings while nobody waits. A user's new job must wait for the interval to end: so readings that
nobody waits for are few."""


class Pace:
    """Invariant: two readings never begin less than an interval apart, whoever is in a hurry."""

    def __init__(self) -> None:
        self._taken_s: float | None = None

    def taken(self, now_s: float) -> None:
        """A reading begins."""
        self._taken_s = now_s

    def wait_s(self, now_s: float, interval_s: float, *, hurry: bool = True) -> float:
        """How long until the next reading may begin, or should, when nobody is in a hurry. Times are of a monotonic clock."""
        if self._taken_s is None:
            return 0.0
        apart_s = interval_s if hurry else _LEISURE * interval_s
        return apart_s - min(max(now_s - self._taken_s, 0.0), apart_s)


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
