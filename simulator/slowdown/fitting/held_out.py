"""What all fits share: which rows are held out, and how well they are predicted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simulator.errors import SlowdownError

Row = TypeVar("Row")


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
