"""Correction of ranges by what came of earlier ones.

A range has three quantiles of the wait that is left: 10 %, 50 % and 90 %. The error of a quantile is the logarithm of the true wait
over it (both with a minute added, so that seconds do not matter). Each quantile is moved by a quantile of its own past errors, by
class of horizon: conformalized quantile regression (Romano et al., NeurIPS 2019), each side apart. Waits drift, so the level of
that quantile is moved too, by the share of earlier ranges that failed on that side (Gibbs and Candès, "Adaptive conformal inference
under distribution shift", NeurIPS 2021). A job that still waits has an error of at least what it has waited: it is counted as
censored (Kaplan and Meier, 1958), because of all jobs of a day the short waits are known first.

Jobs that wait together are late together, so many ranges of one hour are few independent ones: the number that counts is that of
the waits that fit one behind another into the time over which the ranges were made. Few of them move a range only a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.model import BoolColumn, FloatColumn, IntColumn

LEVELS = np.array([0.1, 0.5, 0.9])
"""The quantiles of a range."""
CLASS_BOUNDS_S = (600.0, 3600.0, 6 * 3600.0, 86400.0)
"""Bounds of the classes of horizon, by the median of a range before its correction, seconds."""
_SOFT_S = 60.0
_NEWEST = 400
"""Number of ranges of one class that are used, the last ones."""
_HALF = 15.0
"""Number of independent ranges of one class at which its own correction and that of all classes count the same."""
_HALF_MISSED = 20.0
"""Number of independent ranges at which half of the excess of failures moves the level."""
_LEAST_LEVEL = 0.01


@dataclass(frozen=True, slots=True)
class Track:
    """A range that was given, and what came of it. Times in seconds since the same moment; waits count from `made_s`."""

    made_s: float
    raw_s: tuple[float, float, float]
    """Waits before the correction: quantiles of 10 %, 50 % and 90 %."""
    shown_s: tuple[float, float, float]
    """Waits that were shown."""
    wait_s: float | None
    """How long the job then waited; None: it still waits."""


def horizon_class(median_s: FloatColumn) -> IntColumn:
    """Return the class of horizon of each median wait."""
    return np.searchsorted(np.array(CLASS_BOUNDS_S), median_s, side="right").astype(np.int64)


class Calibration:
    """Corrections from the newest ranges of each class. `tracks` are in the order in which they were made."""

    def __init__(self, tracks: Sequence[Track], now_s: float) -> None:
        """Learn from these ranges; jobs without a start have waited until `now_s`."""
        self._made_s = np.array([track.made_s for track in tracks], dtype=np.float64)
        self._raw_s = np.array([track.raw_s for track in tracks]).reshape(-1, 3)
        self._shown_s = np.array([track.shown_s for track in tracks]).reshape(-1, 3)
        self._started = np.array([track.wait_s is not None for track in tracks], dtype=np.bool_)
        waits = [now_s - track.made_s if track.wait_s is None else track.wait_s for track in tracks]
        self._wait_s = np.maximum(np.array(waits, dtype=np.float64), 0.0)
        horizon = horizon_class(self._raw_s[:, 1])
        every = self._shift(np.arange(len(tracks))[-2 * _NEWEST :], np.zeros(len(LEVELS)))
        rows = [np.flatnonzero(horizon == one)[-_NEWEST:] for one in range(len(CLASS_BOUNDS_S) + 1)]
        self._shifts = np.array([self._shift(row, every) for row in rows])
        self._held = [self._held_of(row) for row in rows]

    def correct(self, raw_s: FloatColumn) -> FloatColumn:
        """Return the ranges, one row for each, moved by the errors of earlier ones: 0 or more, and in order."""
        shift = self._shifts[horizon_class(raw_s[:, 1])]
        moved = np.maximum((_SOFT_S + raw_s) * np.exp(shift) - _SOFT_S, 0.0)
        return np.asarray(np.maximum.accumulate(moved, axis=1))

    def held(self, raw_s: FloatColumn) -> list[tuple[int, int]]:
        """Return for each range how many ranges of its class held, and of how many that is known."""
        return [self._held[one] for one in horizon_class(raw_s[:, 1]).tolist()]

    def _shift(self, rows: IntColumn, otherwise: FloatColumn) -> FloatColumn:
        """Return how far the logarithms of the quantiles are moved, mixed with another shift where the ranges are few."""
        if not len(rows):
            return otherwise
        independent = self._independent(rows)
        weight = independent / (independent + _HALF)
        errors = np.log(_SOFT_S + self._wait_s[rows])[:, None] - np.log(_SOFT_S + self._raw_s[rows])
        levels = self._levels(rows, independent)
        own = [censored_quantile(errors[:, k], self._started[rows], float(levels[k])) for k in range(len(LEVELS))]
        return np.asarray(weight * np.array(own) + (1.0 - weight) * otherwise)

    def _independent(self, rows: IntColumn) -> float:
        """Return as how many independent ranges these count: 1 to their number."""
        made_s = self._made_s[rows]
        return min(float(len(rows)), 1.0 + float(made_s[-1] - made_s[0]) / max(float(self._wait_s[rows].mean()), 1.0))

    def _levels(self, rows: IntColumn, independent: float) -> FloatColumn:
        """Return the levels at which quantiles of errors are taken: farther out on a side where too many ranges failed."""
        wait_s, shown_s = self._wait_s[rows], self._shown_s[rows]
        known = self._known(rows)
        failed = np.array([(known & (wait_s < shown_s[:, 0])).sum(), (known & (wait_s > shown_s[:, -1])).sum()])
        share = failed / max(int(known.sum()), 1)
        excess = (share - LEVELS[0]) * (independent / (independent + _HALF_MISSED)) if known.any() else np.zeros(2)
        low, high = np.clip(LEVELS[0] - excess, _LEAST_LEVEL, 0.5 - _LEAST_LEVEL)
        return np.array([low, LEVELS[1], 1.0 - high])

    def _known(self, rows: IntColumn) -> BoolColumn:
        """Return of which ranges it is known whether they held."""
        return np.asarray(self._started[rows] | (self._wait_s[rows] > self._shown_s[rows, -1]))

    def _held_of(self, rows: IntColumn) -> tuple[int, int]:
        wait_s, shown_s = self._wait_s[rows], self._shown_s[rows]
        held = self._started[rows] & (shown_s[:, 0] <= wait_s) & (wait_s <= shown_s[:, -1])
        return int(held.sum()), int(self._known(rows).sum())


def censored_quantile(values: FloatColumn, exact: BoolColumn, level: float) -> float:
    """Return that quantile of values of which some are only lower bounds; the largest one where the quantile is not reached."""
    order = np.lexsort((~exact, values))
    values, exact = values[order], exact[order]
    at_risk = np.arange(len(values), 0, -1)
    # One more value than there are is at risk: the next one, which is larger than all with that probability.
    above = np.cumprod(np.where(exact, 1.0 - 1.0 / (at_risk + 1.0), 1.0))
    reached = np.flatnonzero(1.0 - above >= level)
    return float(values[reached[0]] if len(reached) else values[-1])
