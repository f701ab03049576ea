"""Step functions over time: means over equal parts of an interval."""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn, IntColumn


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
