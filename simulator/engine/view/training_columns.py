"""Epochs and progress of jobs, as users state them and agents report them on a live cluster.

Only a trace with a column `epochs` has them. Without it a share could not be computed, and progress would disclose the true
duration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.kernel.job import ActiveJob
from simulator.traces.trace import Trace


class TrainingColumns:
    """Training columns of one trace."""

    def __init__(self, trace: Trace) -> None:
        texts = trace.extra.get("epochs")
        self._epochs: FloatColumn | None = None if texts is None else np.array([_number(text) for text in texts])

    def of(self, active: Sequence[ActiveJob], rows: IntColumn) -> dict[str, FloatColumn]:
        """Return the columns for a state of these jobs, of those rows of the trace; empty where nothing is known."""
        if self._epochs is None or not active:
            return {}
        epochs = self._epochs[rows]
        done = np.array([1.0 - job.left / job.work for job in active]).clip(0.0, 1.0)
        return {"epochs": epochs, "progress": np.where(np.isnan(epochs), np.nan, done)}


def _number(text: str) -> float:
    return float(text) if text.isdecimal() and int(text) > 0 else np.nan
