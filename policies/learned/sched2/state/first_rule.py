"""The rule from which the search for a better one begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.feature_columns import IS_SPREAD, LOG_GPUS, LOG_TIME, OF_JOB, SIZES


def first_rule() -> npt.NDArray[np.float64]:
    """Return a weight for each feature of a candidate: shortest and smallest first, and jobs that would be scattered wait."""
    rule = np.zeros(OF_JOB)
    rule[LOG_TIME], rule[LOG_GPUS], rule[IS_SPREAD], rule[-SIZES:] = -1.0, -0.7, -6.0, 5.0
    return rule
