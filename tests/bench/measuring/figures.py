"""Results of a benchmark: figures with their targets, and the samples behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    benchmark: str
    name: str
    value: float
    unit: str
    at_most: float | None = None
    """The target, in the same unit; None = for information only."""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """True if the target is met; None = there is no target."""
        return None if self.at_most is None else self.value <= self.at_most

    def as_json(self) -> dict[str, Any]:
        """Return the figure for the file in bench-results/."""
        return {
            "benchmark": self.benchmark,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target_at_most": self.at_most,
            "met": self.met,
            "note": self.note,
        }


@dataclass(slots=True)
class Findings:
    """Collects the figures of one benchmark."""

    benchmark: str
    figures: list[Figure] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, at_most: float | None = None, note: str = "") -> None:
        """Add a line to the table."""
        self.figures.append(Figure(self.benchmark, name, value, unit, at_most, note))

    def keep(self, name: str, values: Sequence[float]) -> None:
        """Add the samples behind figures, for the file."""
        self.samples[name] = [round(value, 6) for value in values]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile by nearest rank, without interpolation."""
    if not values:
        raise ValueError("no samples")
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """ "least 12, median 14, most 30 of 100"."""
    least, middle, most = (value * scale for value in (min(values), median(values), max(values)))
    return f"least {least:.4g}, median {middle:.4g}, most {most:.4g} of {len(values)}"
