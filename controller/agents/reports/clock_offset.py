"""Time of a node's events on the controller's clock, even when either clock is set."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

_SPAN_S = 300.0
"""Length of a span, in seconds. Clocks drift by 0.2 s at most in this time: NTP may slew them by 500 ppm."""
NS = 1e-9


class AgentClock:
    """Estimate of a node's CLOCK_MONOTONIC from the batches of one stream.

    The transit time of a batch is unknown, but never negative. So the smallest difference between arrival and sending among
    recent batches is the offset of the clocks. Invariant: no clock that can be set has a part in the offset; this machine's wall
    clock only turns a moment into Unix time.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._now = now
        self._least_s = inf
        self._least_before_s = inf
        """Minimum of the span before, which counts while the present span has only begun."""
        self._since_s = monotonic()

    def arrived(self, sent_ns: int) -> None:
        """Record that a batch has arrived which was sent at that time of the node's clock."""
        here_s = self._monotonic()
        if here_s - self._since_s > _SPAN_S:
            self._least_before_s, self._least_s, self._since_s = self._least_s, inf, here_s
        self._least_s = min(self._least_s, here_s - sent_ns * NS)

    def when(self, made_ns: int) -> float | None:
        """Return the Unix time of an event, by the controller's present clock; None before the first batch."""
        least_s = min(self._least_s, self._least_before_s)
        if least_s == inf:
            return None
        return self._now() - (self._monotonic() - (made_ns * NS + least_s))
