"""Sizes of jobs, in classes, and quantiles of values. Pure."""

from __future__ import annotations

from collections.abc import Iterable

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the classes, in GPUs; one more class is for larger jobs."""


def size_class(gpus: int) -> int:
    """Return the position of the class in SIZES; len(SIZES) for larger jobs."""
    return next((at for at, most in enumerate(SIZES) if gpus <= most), len(SIZES))


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that so large a share of the values does not exceed; None: there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(-int(-len(ordered) * share // 1) - 1, 0)]
