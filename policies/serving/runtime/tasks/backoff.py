"""Pauses between tries that double with every failure."""

from __future__ import annotations

import random
from dataclasses import dataclass

_MOST_DOUBLINGS = 64
"""Any first pause of a nanosecond or more has passed any sensible longest one by then."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A first pause, doubled with every further failure, and a longest one.

    Invariant: `pause_s` returns a number between 0 and `longest_s` for every integer, however many failures a journal has counted.
    """

    first_s: float
    longest_s: float

    def pause_s(self, doublings: int) -> float:
        """Return the pause after that many doublings, seconds; a negative number counts as none."""
        return min(self.first_s * float(1 << min(max(doublings, 0), _MOST_DOUBLINGS)), self.longest_s)


class Retries:
    """Counts failures in a row and returns the pause after each.

    Invariant: with `rng` a pause is between half of the backoff's and the whole, so that many clients do not retry at once.
    """

    def __init__(self, backoff: Backoff, rng: random.Random | None = None) -> None:
        self.failures = 0
        """Failures since the last success."""
        self._backoff = backoff
        self._rng = rng

    def next_s(self) -> float:
        """Count a failure and return the pause before the next try, seconds."""
        pause_s = self._backoff.pause_s(self.failures)
        self.failures += 1
        return pause_s if self._rng is None else pause_s * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Count from 0 again, after a success."""
        self.failures = 0
