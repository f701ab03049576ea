"""Parts of GPUs. Jobs of the simulator occupy whole GPUs, so that a part is rounded up, or GPUs are counted in shares.

With `gpu_shares` K a trace counts in K-ths of a GPU: a job of half a GPU has 4 of 8 shares. It runs on a cluster with K times as
many GPUs on each node. Jobs with shares of one GPU run at full speed beside each other, and a job's shares may be those of several
GPUs of a node. Parts that are no whole number of shares are rounded up.
"""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.traces.numbers import MOST_GPUS

_EXACT = 1e-6
"""Parts of a share up to which a number counts as whole: 0.1 of a GPU is one tenth, although floats differ."""


def in_shares(gpus: FloatColumn, shares: int) -> IntColumn:
    """Return numbers of GPUs as whole numbers of shares, rounded up; at least one for more than nothing."""
    counted = np.clip(np.nan_to_num(gpus) * shares, 0.0, MOST_GPUS + 1.0)
    return np.maximum(np.ceil(counted - _EXACT), counted > 0).astype(np.int64)
