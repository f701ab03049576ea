"""A token bucket: a rate over long times with a burst above it. Pure: the caller gives the time."""

from __future__ import annotations


class TokenBucket:
    """Tokens that refill at `per_s` a second up to `burst`; a new bucket is full.

    Invariant: `take` grants at most `burst` tokens at once and `per_s` a second for long. Times must be of a clock that does not
    go back; where one does, nothing is refilled until it has caught up.
    """

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s, self._burst, self._left, self._at_s = per_s, float(burst), float(burst), now_s

    def take(self, now_s: float, amount: float = 1.0) -> bool:
        """Take that many tokens and return True, or take nothing and return False when fewer are left."""
        self._refill(now_s)
        if self._left < amount:
            return False
        self._left -= amount
        return True

    def delay_s(self, now_s: float) -> float:
        """Take one token, on credit when none is left, and return the seconds until the credit is paid back; 0 = none."""
        self.spend(now_s, 1.0)
        return max(-self._left / self._per_s, 0.0)

    def left(self, now_s: float) -> float:
        """Return the number of tokens; below 0 = taken on credit."""
        self._refill(now_s)
        return self._left

    def spend(self, now_s: float, amount: float) -> None:
        """Take that many tokens, on credit when fewer are left."""
        self._refill(now_s)
        self._left -= amount

    def _refill(self, now_s: float) -> None:
        if now_s > self._at_s:
            self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
            self._at_s = now_s
