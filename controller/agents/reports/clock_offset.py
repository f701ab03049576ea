"""When things happened on a node, by the controller's clock, whatever is done to the clocks of either."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

_SPAN_S = 300.0
"""Clocks that nobody sets drift apart all the same: by 0.2 s in so long, at the most that NTP may slew them (500 ppm)."""
NS = 1e-9


class AgentClock:
    """One stream's idea of its node's CLOCK_MONOTONIC.

    A batch of reports has been on its way for some time, which is not known, but never less than none: of what recent batches
    had between being sent and arriving, the least is what the clocks differ by. Invariant: no clock that can be set has a part
    in it; the wall clock of this machine is only read to name a moment.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._now = now
        self._least_s = inf
        self._least_before_s = inf
        """Of the span before this one: so that there is one when this one has just begun."""
        self._since_s = monotonic()

    def arrived(self, sent_ns: int) -> None:
        """A batch has come that was sent then."""
        here_s = self._monotonic()
        if here_s - self._since_s > _SPAN_S:
            self._least_before_s, self._least_s, self._since_s = self._least_s, inf, here_s
        self._least_s = min(self._least_s, here_s - sent_ns * NS)

    def when(self, made_ns: int) -> float | None:
        """Seconds since the epoch, by the controller's clock as it is now; None: nothing has arrived yet."""
        least_s = min(self._least_s, self._least_before_s)
        if least_s == inf:
            return None
        return self._now() - (self._monotonic() - (made_ns * NS + least_s))
