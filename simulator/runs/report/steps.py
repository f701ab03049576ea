"""Step functions over time: means over equal parts of an interval."""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.results.result import Spans


def means(times: IntColumn, levels: IntColumn, edges: IntColumn) -> FloatColumn:
    """Return the mean between every two edges of the function that is `levels[i]` from `times[i]` (increasing) on, and 0 before."""
    if not len(times):
        return np.zeros(len(edges) - 1)
    since = (times - edges[0]).astype(np.float64)
    area = np.concatenate(([0.0], np.cumsum(np.diff(since) * levels[:-1])))
    at = (edges - edges[0]).astype(np.float64)
    place = np.searchsorted(since, at, side="right") - 1
    known = np.maximum(place, 0)
    until = np.where(place < 0, 0.0, area[known] + (at - since[known]) * levels[known])
    mean: FloatColumn = np.diff(until) / np.diff(at)
    return mean


def busy(spans: Spans) -> tuple[IntColumn, IntColumn]:
    """Return the instants at which the number of GPUs of jobs changes, and the number from then on."""
    if not len(spans):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    occupied = np.add.reduceat(spans.counts, spans.offset[:-1])
    time = np.concatenate((spans.start, spans.end))
    order = np.argsort(time, kind="stable")
    return time[order], np.cumsum(np.concatenate((occupied, -occupied))[order])
