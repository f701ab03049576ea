"""The estimate of one job's start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.slurm.model.job import JobKey


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a job will start, as a range that should hold in 8 of 10 cases. Times in seconds since the Unix epoch."""

    earliest_s: float
    median_s: float
    latest_s: float
    """0: so late that no time can be given."""
    held: int
    """Number of earlier ranges of about this horizon that held."""
    known: int
    """Number of those of which it is known whether they held."""
    stand_in: str
    """Policy by whose rule it was made, if that of the deciding policy cannot be computed; empty: its own."""
    made_s: float


Starts = Callable[[JobKey], StartEstimate | None]
"""Returns the estimate of a waiting job; None: there is none."""


def no_starts(_key: JobKey) -> StartEstimate | None:
    """Return no estimate, where none are made."""
    return None
