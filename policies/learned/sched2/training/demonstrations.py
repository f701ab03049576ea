"""Demonstrations: the actions of simple rules that perform well and never scatter a job that loses speed by it.

An agent learns from them at the beginning of its training (`recipe`). They need the states alone, not the simulator.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.placements import NUM_PLACEMENTS
from policies.learned.sched2.state.state_columns import StateColumns

LOCAL_SIF, LOCAL_SPF = "local-sif", "local-spf"
RULES = (LOCAL_SIF, LOCAL_SPF)
_SAME = 1.0 + 1e-6


def actions_of(
    rule: str, columns: StateColumns, states: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return the rule's action for each state of a batch: start the job of least time (SIF), or least time times GPUs (SPF), among
    those that lose no speed where packing puts them now; void if there is none, unless void is masked."""
    gpus, jobs, _ = columns.split(states)
    free = (gpus == 0).sum(2).max(1)
    asked = np.rint(jobs[:, :, NUM_PLACEMENTS] * columns.gpus)
    ideal, apart = jobs[:, :, 0].astype(np.float64), jobs[:, :, 1]
    spread = (asked <= columns.gpus) & (asked > free[:, None]) & (apart > _SAME * ideal)
    keys = ideal * asked if rule == LOCAL_SPF else ideal
    keys = np.where(masks[:, 1:], keys, np.inf)
    local = np.where(spread, np.inf, keys)
    best = local.argmin(1) + 1
    none_fits = ~np.isfinite(local.min(1))
    return np.where(none_fits, np.where(masks[:, 0], 0, keys.argmin(1) + 1), best)
