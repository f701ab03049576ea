"""Pauses that double with every failed try, up to a longest one."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 64
"""Any first pause of a nanosecond or more has passed any sensible longest one by then."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A first pause, doubled with every further failure, and a longest one.

    Invariant: `pause_s` returns a number between 0 and `longest_s` for every integer, however many failures a journal has
    counted.
    """

    first_s: float
    longest_s: float

    def pause_s(self, doublings: int) -> float:
        """Return the pause after that many doublings, seconds; a negative number counts as none."""
        return min(self.first_s * float(1 << min(max(doublings, 0), _MOST_DOUBLINGS)), self.longest_s)
