"""The value of a job: its logarithm is linear in the features, which include products; and three numbers for the search.

There is only one layer, because a training step costs hours of simulated decisions and gives no gradients, while sixteen numbers
can be found by comparing whole runs. Serving needs numpy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy

import numpy as np
import numpy.typing as npt

from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.search import Terms

Weights = Mapping[str, npt.NDArray[np.float64]]
TERMS = ("bulk", "threshold", "log_stop")
_MOST = 12.0
"""Largest difference of the logarithm of a value from the mean, so that no job's value is negligible."""


def empty() -> dict[str, npt.NDArray[np.float64]]:
    """Return zero weights of the right form."""
    return {"linear": np.zeros(len(NAMES)), "terms": np.zeros(len(TERMS))}


class ValueFunction:
    """Values of jobs. Invariant: equal weights and features give equal values."""

    def __init__(self, weights: Weights) -> None:
        """`weights` have the form of `empty`."""
        self._linear = np.array(weights["linear"], dtype=np.float64)
        bulk, threshold, log_stop = np.asarray(weights["terms"], dtype=np.float64).tolist()
        stop = math.exp(min(max(log_stop, -12.0), 2.0))
        self.terms = Terms(bulk=min(max(bulk, -2.0), 4.0), threshold=min(max(threshold, 0.0), 1.0), stop=stop)

    def with_tail(self, tail: float) -> ValueFunction:
        """Return the function whose values are these times (1 + time since submission / unit)^`tail`; 0: this function.

        The unit is that of the features: the mean estimated duration of the present jobs.
        """
        if not tail:
            return self
        found = copy(self)
        found._linear = self._linear.copy()
        found._linear[NAMES.index("waited")] += tail
        return found

    def values(self, features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return a value for each row, more than 0. Only their ratios have a meaning."""
        if not len(features):
            return np.zeros(0)
        # Sums column by column: equal on every machine, which a matrix product is not.
        logs = np.zeros(len(features))
        for column, weight in zip(features.T, self._linear.tolist(), strict=True):
            logs += weight * column
        return np.asarray(np.exp(np.clip(logs - logs.mean(), -_MOST, _MOST)))
