"""Rounds of a policy that decides at multiples of a length of time alone, and lets running jobs go on between them."""

from __future__ import annotations

from math import floor


class Rounds:
    """Says when a round begins. Invariant: it says so at most once in each round, at the first instant in it that it is asked for.

    In the simulator policies are asked at each multiple of `spec.round_s`, so a round begins there. A controller asks within
    a second or so of it.
    """

    def __init__(self, length_s: float) -> None:
        """`length_s` is the length of a round; 0: every instant begins one."""
        self._length_s = length_s
        self._last: int | None = None

    def begins(self, time_s: float) -> bool:
        """Return whether a round begins at that time. The first instant of all does so only if it is a multiple: before it, others
        may have begun the round."""
        if not self._length_s:
            return True
        number, before = floor(time_s / self._length_s), self._last
        self._last = number
        return number != before if before is not None else time_s % self._length_s == 0
