"""Least squares: with coefficients that are not negative, and with a value for each of two keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from policies.model import FloatColumn

A = TypeVar("A", bound=Hashable)
B = TypeVar("B", bound=Hashable)
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def nonnegative(matrix: Matrix, target: FloatColumn) -> FloatColumn:
    """Return the x >= 0 that minimises |matrix x - target|, by trying every set of active columns (there are at most five).

    Not scipy's `nnls`: where too few sizes were measured to tell columns apart, it takes any of them (a model measured at one
    size then never gets faster with more GPUs), and this prefers the first. scipy would also add 143 MB to the controller.
    """
    columns = matrix.shape[1]
    best, least = np.zeros(columns), float(target @ target)
    for mask in range(1, 1 << columns):
        chosen = [column for column in range(columns) if mask >> column & 1]
        found = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
        if (found < 0).any():
            continue
        error = float(np.sum((matrix[:, chosen] @ found - target) ** 2))
        if error < least * (1 - 1e-12):
            least = error
            best = np.zeros(columns)
            best[chosen] = found
    return best


def two_way(rows: Sequence[tuple[A, B, float]], rounds: int = 50) -> tuple[dict[A, float], dict[B, float]]:
    """Fit value = a[first] + b[second]; return a and b. Each in turn becomes the mean of the residuals that the other leaves."""
    first: dict[A, float] = {}
    second: dict[B, float] = {}
    for _ in range(rounds):
        second = _means((b, value - first.get(a, 0.0)) for a, b, value in rows)
        first = _means((a, value - second[b]) for a, b, value in rows)
    return first, second


def _means(pairs: Iterable[tuple[A, float]]) -> dict[A, float]:
    sums: dict[A, list[float]] = defaultdict(list)
    for key, value in pairs:
        sums[key].append(value)
    return {key: sum(values) / len(values) for key, values in sums.items()}
