"""How good estimates of starts were: coverage of the 80 % range, and pinball loss against other estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from policies.model import FloatColumn
from simulator.forecast.calibration import LEVELS
from simulator.runs.starts.replay import Made


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Figures of one kind of estimate."""

    pinball_s: float
    """Mean pinball loss over jobs and the quantiles 10 %, 50 % and 90 %, seconds."""
    coverage: float
    """Share of the jobs that started within the range from the 10 % to the 90 % quantile."""
    width_s: float
    """Median width of that range, seconds."""
    below: float
    """Share of the jobs that started earlier than the range."""
    above: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of one replay."""

    estimates: int
    """Scored estimates: made in the held-back part, for jobs that have started."""
    not_started: int
    """Other estimates of that part, for jobs that never started."""
    wait_p50_s: float
    wait_mean_s: float
    most_waiting: int
    cpu_mean_s: float
    cpu_most_s: float
    shown: Accuracy
    uncorrected: Accuracy
    by_size: Accuracy
    by_limits: Accuracy

    def gain_over(self, other: Accuracy) -> float:
        """Return by what share the loss is below that of other estimates."""
        return 1.0 - self.shown.pinball_s / other.pinball_s

    def as_json(self) -> dict[str, object]:
        """Return the figures as values that JSON has."""
        gains = {
            "gain_over_by_size": self.gain_over(self.by_size),
            "gain_over_by_limits": self.gain_over(self.by_limits),
        }
        return asdict(self) | gains


def figures(made: Sequence[Made]) -> Figures | None:
    """Return the figures of these estimates; None if no job of them has started."""
    ended = [(one, wait_s) for one in made if (wait_s := one.wait_s) is not None]
    if not ended:
        return None
    waits = np.array([wait_s for _, wait_s in ended])
    cpu_s = [one.cpu_s for one, _ in ended]
    return Figures(
        estimates=len(ended),
        not_started=len(made) - len(ended),
        wait_p50_s=float(np.median(waits)),
        wait_mean_s=float(waits.mean()),
        most_waiting=max(one.waiting for one, _ in ended),
        cpu_mean_s=float(np.mean(cpu_s)),
        cpu_most_s=max(cpu_s),
        shown=accuracy(np.array([one.shown_s for one, _ in ended]), waits),
        uncorrected=accuracy(np.array([one.raw_s for one, _ in ended]), waits),
        by_size=accuracy(np.array([one.by_size_s for one, _ in ended]), waits),
        by_limits=accuracy(np.array([[one.by_limits_s] * len(LEVELS) for one, _ in ended]), waits),
    )


def accuracy(quantiles: FloatColumn, waits: FloatColumn) -> Accuracy:
    """Return the figures of these quantiles (a row for each job) of the waits of those jobs."""
    error = waits[:, None] - quantiles
    below, above = waits < quantiles[:, 0], waits > quantiles[:, -1]
    return Accuracy(
        pinball_s=float(np.maximum(LEVELS * error, (LEVELS - 1.0) * error).mean()),
        coverage=float((~below & ~above).mean()),
        width_s=float(np.median(quantiles[:, -1] - quantiles[:, 0])),
        below=float(below.mean()),
        above=float(above.mean()),
    )
