"""Means over seeds, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt, tan
from statistics import fmean, stdev

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.

A table: scipy is not a dependency of Headway, and nothing else here needs it."""
_NORMAL = 1.959964
LEVEL = 0.05
"""Probability that a 95 % interval does not contain its mean."""
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, and half of its 95 % interval by Student's t; None where there is only one value."""

    mean: float
    ci95: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Return the mean of independent values, such as one for each seed."""
        count = len(values)
        if count < 2:
            return cls(fmean(values), None)
        return cls(fmean(values), _quantile(count - 1) * stdev(values) / sqrt(count))


def mean_as_json(mean: Mean | None) -> dict[str, float | None] | None:
    """Return a mean as JSON has it: `mean` and `ci95`."""
    return None if mean is None else {"mean": mean.mean, "ci95": mean.ci95}


def _quantile(degrees: int) -> float:
    """Return the 97.5 % quantile; beyond the table by its expansion around the normal distribution, exact to 4 digits there."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    z, n = _NORMAL, degrees
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def spent_level(comparison: int) -> float:
    """Return the level of the comparison of that number, from 1 on: `LEVEL` / (k (k + 1)).

    The levels of all comparisons add up to `LEVEL`, so that is the probability of any error, however many comparisons there are and
    however much data they share (the union bound; alpha spending).
    """
    return LEVEL / (comparison * (comparison + 1))


def widened(ci95: float, values: int, level: float) -> float:
    """Return half of the interval at that level, from half of the 95 % interval of the mean of so many values, at least two."""
    return ci95 * _two_sided_quantile(values - 1, level) / _two_sided_quantile(values - 1, LEVEL)


def _two_sided_quantile(degrees: int, level: float) -> float:
    """Return t with P(|T| > t) = level, for Student's T with so many degrees of freedom."""
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, degrees) < 1.0 - level else (low, middle)
    return sqrt(degrees) * tan(low)


def _inside(angle: float, degrees: int) -> float:
    """Return P(|T| < sqrt(degrees) tan(angle)): Abramowitz and Stegun, equations 26.7.3 (odd degrees) and 26.7.4 (even)."""
    is_odd = degrees % 2
    term, total = cos(angle) ** is_odd, 0.0
    for step in range(is_odd + 1, degrees, 2):
        total += term
        term *= cos(angle) ** 2 * step / (step + 1)
    return (angle + sin(angle) * total) * 2 / pi if is_odd else sin(angle) * total


def changes(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the relative changes against the others, pair by pair: -0.1 is a tenth less."""
    return [value / other - 1.0 for value, other in zip(values, others, strict=True)]


def change(values: Sequence[float], others: Sequence[float]) -> Mean:
    """Return the mean of those changes, where each pair is independent of the others."""
    return Mean.of(changes(values, others))
