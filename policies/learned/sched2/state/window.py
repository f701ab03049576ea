"""The waiting jobs that an agent may choose from.

`first`: the J that were submitted first, as in the paper. `widest`: of the whole queue those that differ most in what can be done
with them: the shortest for each number of GPUs, then the second shortest of each, and so on.
"""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn, IntColumn

FIRST, WIDEST = "first", "widest"
WINDOWS = (FIRST, WIDEST)


def chosen(window: str, most: int, gpus: IntColumn, ideal: FloatColumn | IntColumn) -> IntColumn:
    """Return the positions of those jobs among all waiting jobs, which are in order of submission with these GPUs and times.

    The first in order of submission; the widest by their rank within those of so many GPUs, then by GPUs.
    """
    if window == FIRST or len(gpus) == 0:
        return np.arange(min(most, len(gpus)))
    order = np.lexsort((ideal, gpus))
    sizes = gpus[order]
    begins = np.flatnonzero(np.concatenate(([True], sizes[1:] != sizes[:-1])))
    of = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(order))))
    rank = np.arange(len(order)) - begins[of]
    return order[np.argsort(rank, kind="stable")][:most]
