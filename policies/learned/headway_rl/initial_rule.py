"""The rule that training begins with: the value of a job is GPUs^0.7 / remaining time^0.6. It was written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.network import TERMS, ValueFunction

START: Mapping[str, tuple[float, float]] = {
    "remaining": (-0.6, 0.25),
    "gpus": (0.7, 0.25),
    "waited": (0.0, 0.15),
    "at_stake": (0.0, 0.3),
    "runs": (0.0, 0.1),
    "share": (0.0, 0.3),
    "odd": (0.0, 0.2),
    "wide": (0.0, 0.25),
    "remaining_pressure": (0.0, 0.1),
    "gpus_pressure": (0.0, 0.1),
    "at_stake_pressure": (0.0, 0.1),
    "waited_gpus": (0.0, 0.12),
    "gpus_coarse": (0.0, 0.4),
    "bulk": (0.5, 0.2),
    "threshold": (0.3, 0.12),
    "log_stop": (-3.5, 0.8),
}
"""First mean and spread of every weight; the means are the rule."""


def initial_rule() -> ValueFunction:
    """Return the rule in the form of learned weights."""
    return ValueFunction({"linear": _means(NAMES), "terms": _means(TERMS)})


def _means(names: tuple[str, ...]) -> npt.NDArray[np.float64]:
    return np.array([START[name][0] for name in names])
