"""Speed of one job without neighbours around a time, from its windows: its steps may become longer or shorter. Pure functions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from controller.profiles.sensitivity import Priors, relative_spread

TimeAndSpeed = tuple[float, float]
_NEAR = 40
"""Maximum number of windows around a time that count: 20 minutes at 30 s each."""
_AT_ONCE = 5
"""Number of windows whose median is compared with that of the nearer ones: one long evaluation does not change it."""
_SAME_SPREADS = 2.0
"""Largest difference of two such medians that counts as none, in standard deviations of windows."""
_USUAL_SPREAD = Priors().window_spread


def speed_around(windows: Sequence[TimeAndSpeed], time_s: float) -> float:
    """Return the speed around that time, from one window or more, oldest first: that of the nearest ones before and after it."""
    place = bisect_left(windows, (time_s,))
    near = windows[max(place - _NEAR, 0) : place + _NEAR]
    nearest = sorted(near, key=lambda window: abs(window[0] - time_s))[:_NEAR]
    return median(up_to_change([steps_per_s for _, steps_per_s in nearest], _USUAL_SPREAD))


def up_to_change(speeds: Sequence[float], usual_spread: float) -> list[float]:
    """Return the first of those speeds (nearest first) up to the first change.

    The few oldest windows of a run would otherwise make every later window look like contention.
    """
    found = list(speeds[:_AT_ONCE])
    for first in range(_AT_ONCE, len(speeds), _AT_ONCE):
        farther, middle = speeds[first : first + _AT_ONCE], median(found)
        spread = max(relative_spread(found) or 0.0, usual_spread)
        if abs(median(farther) - middle) > _SAME_SPREADS * spread * middle:
            break
        found += farther
    return found
