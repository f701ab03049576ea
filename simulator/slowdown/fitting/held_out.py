"""Held-out rows of a fit, and the error with which they are predicted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simulator.errors import SlowdownError

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FitReport:
    """The error of a fit on rows that it has not seen."""

    fitted: int
    """Number of rows from which the parameters were fitted."""
    held_out: int
    """Number of rows that were predicted."""
    mean_error: float
    """Mean of |predicted - measured| / measured over the held-out rows."""
    worst_error: float
    """The largest of these errors."""
    seed: int
    """Seed of the split."""

    def __str__(self) -> str:
        return (
            f"{self.fitted} rows fitted, {self.held_out} held out: mean error {100 * self.mean_error:.1f} %, "
            f"worst {100 * self.worst_error:.1f} % (seed {self.seed})"
        )


def split(
    rows: Sequence[Row], measured: Callable[[Row], float], seed: int, share: float = 0.25
) -> tuple[list[Row], list[Row]]:
    """Split rows into those to fit from and those held out: a random share, at least one.

    Raises SlowdownError for too few rows, and for a row whose measured number is not above 0.
    """
    if len(rows) < 4:
        raise SlowdownError(f"{len(rows)} rows are too few to fit from", mend="give at least four")
    for at, row in enumerate(rows):
        if not 0 < measured(row) < float("inf"):
            raise SlowdownError(f"row {at + 1}, {row}, measures no number above 0", mend="leave such rows out")
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)  # noqa: S311 - the choice of rows is not a secret
    out = set(order[: max(1, round(len(rows) * share))])
    return (
        [row for at, row in enumerate(rows) if at not in out],
        [row for at, row in enumerate(rows) if at in out],
    )


def report(
    fitted: Sequence[Row],
    held_out: Sequence[Row],
    predicted: Callable[[Row], float | None],
    measured: Callable[[Row], float],
    seed: int,
) -> FitReport:
    """Return the errors on the rows held out, except those that cannot be predicted (None)."""
    pairs = [(predicted(row), measured(row)) for row in held_out]
    errors = [abs(guess - truth) / abs(truth) for guess, truth in pairs if guess is not None and truth]
    if not errors:
        raise SlowdownError("none of the held-out rows can be predicted", mend="give more rows of the same kind")
    return FitReport(len(fitted), len(errors), sum(errors) / len(errors), max(errors), seed)
