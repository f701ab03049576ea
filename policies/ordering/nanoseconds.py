"""Times as whole nanoseconds, so that orders do not depend on the last bit of a float.

A simulator counts in nanoseconds and gives policies seconds. Differences and products of those are off by less than half a
nanosecond (while times stay below a month or so): rounded, they are what the simulator had, and equal things compare equal.
"""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn, IntColumn

NEVER = (1 << 63) - 1
"""Stands for a time that is infinite or not known."""
_NS_PER_S = 1e9


def whole_ns(seconds: FloatColumn) -> IntColumn:
    """Return seconds (or GPU-seconds), 0 or more, as whole nanoseconds; NEVER where they are infinite, NaN or beyond 292 years."""
    with np.errstate(invalid="ignore", over="ignore"):
        ns = np.rint(seconds * _NS_PER_S)
    known = ns < float(NEVER)
    return np.where(known, np.where(known, ns, 0.0).astype(np.int64), NEVER)


def times(ns: IntColumn, factor: IntColumn) -> IntColumn:
    """Return the product, or NEVER where it does not fit into 63 bits."""
    return np.where(ns <= NEVER // np.maximum(factor, 1), ns * np.where(ns == NEVER, 1, factor), NEVER)
