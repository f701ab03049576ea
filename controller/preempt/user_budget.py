"""The budget of one user: how many changes of their own jobs the operator allows within an hour. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.base.text import clock_time, count, duration
from controller.preempt.budget import HOUR_S


@dataclass(frozen=True, slots=True)
class UserBudget:
    """A user's budget at one moment. Invariant: `left` is above 0 exactly when the next change is allowed now."""

    most: int
    """`user_changes_per_hour`."""
    times_s: Sequence[float]
    """Times of the user's changes within the last hour, ascending, Unix time."""
    now_s: float

    @property
    def left(self) -> int:
        """Number of further changes that are allowed now."""
        return max(self.most - len(self.times_s), 0)

    @property
    def next_s(self) -> float:
        """Unix time from which the next change is allowed; now if there are some left, infinite if there never is one."""
        if self.left:
            return self.now_s
        if not self.most:
            return math.inf
        # A clock that was set back must not let a user wait for longer than the hour.
        return min(self.times_s[len(self.times_s) - self.most], self.now_s) + HOUR_S

    def refusal(self) -> str:
        """Return why no further change is allowed now, as a sentence without a full stop; empty: one is allowed."""
        if self.left:
            return ""
        made = count(len(self.times_s), "change")
        return (
            f"you have requested {made} of your own jobs within the last hour, so none is left of {self.most} "
            f"(user_changes_per_hour); the next is allowed in {duration(self.next_s - self.now_s)}, at {clock_time(self.next_s)}"
        )
