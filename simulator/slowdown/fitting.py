"""What the fits share: which rows are held out, how well they are predicted, and least squares with signs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from policies.model import FloatColumn
from simulator.errors import SlowdownError

Row = TypeVar("Row")
A = TypeVar("A", bound=Hashable)
B = TypeVar("B", bound=Hashable)
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class FitReport:
    """How well a fit predicts rows that it has not seen."""

    fitted: int
    """Rows that the parameters were found from."""
    held_out: int
    """Rows that were predicted."""
    mean_error: float
    """Mean of |predicted - measured| / measured over the held-out rows."""
    worst_error: float
    """The largest of them."""
    seed: int
    """Of the split."""

    def __str__(self) -> str:
        return (
            f"{self.fitted} rows fitted, {self.held_out} held out: mean error {100 * self.mean_error:.1f} %, "
            f"worst {100 * self.worst_error:.1f} % (seed {self.seed})"
        )


def split(
    rows: Sequence[Row], measured: Callable[[Row], float], seed: int, share: float = 0.25
) -> tuple[list[Row], list[Row]]:
    """The rows to fit from, and those held out: a random share of them, at least one.

    Raises SlowdownError on too few rows, and on one whose measured number is not above 0.
    """
    if len(rows) < 4:
        raise SlowdownError(f"{len(rows)} rows are too few to fit from", mend="give at least four")
    for at, row in enumerate(rows):
        if not 0 < measured(row) < float("inf"):
            raise SlowdownError(f"row {at + 1}, {row}, measures nothing above 0", mend="leave such rows out")
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)  # noqa: S311 - which rows are held out is no secret
    held = set(order[: max(1, round(len(rows) * share))])
    return (
        [row for at, row in enumerate(rows) if at not in held],
        [row for at, row in enumerate(rows) if at in held],
    )


def report(
    fitted: Sequence[Row],
    held_out: Sequence[Row],
    predicted: Callable[[Row], float | None],
    measured: Callable[[Row], float],
    seed: int,
) -> FitReport:
    """The errors on the rows held out; rows that cannot be predicted (None) are left out."""
    pairs = [(predicted(row), measured(row)) for row in held_out]
    errors = [abs(guess - truth) / abs(truth) for guess, truth in pairs if guess is not None and truth]
    if not errors:
        raise SlowdownError("no row that was held out can be predicted", mend="give more rows of the same kind")
    return FitReport(len(fitted), len(errors), sum(errors) / len(errors), max(errors), seed)


def nonnegative(matrix: Matrix, target: FloatColumn) -> FloatColumn:
    """The x >= 0 that makes |matrix x - target| least (Lawson and Hanson's active sets, by trying all of them: few columns)."""
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
    """a and b for which value = a[first] + b[second] best: each in turn is the mean of what the other leaves."""
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
