"""Search for a rule, the linear part of the network, by CMA-ES (`algorithms.evolution`).

Each drawn rule plays whole episodes, all rules on the same traces. An episode's average JCT
measures a whole schedule, whereas Q-learning must estimate the value of one start among a thousand from returns that contain a
thousand others and all arrivals. So the search finds in minutes what Q-learning does not, and Q-learning begins with its result.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.algorithms.evolution import Evolution
from policies.learned.sched2.state.feature_layout import IS_SPREAD, LOG_GPUS, LOG_TIME, OF_JOB, SIZES
from policies.learned.training.run.seeding import generator

Floats = npt.NDArray[np.float64]


def search(rules: int, seed: int) -> Evolution:
    """Return a search that draws so many rules at a time, at least 3."""
    deviation = np.full(OF_JOB, 0.4)
    deviation[IS_SPREAD], deviation[-SIZES:] = 2.0, 0.7
    return Evolution(first_rule(), deviation, rules, lambda number: generator(seed, "rules", number))


def first_rule() -> Floats:
    """Return the rule to start from: shortest and smallest first, and jobs that would be scattered wait."""
    rule = np.zeros(OF_JOB)
    rule[LOG_TIME], rule[LOG_GPUS], rule[IS_SPREAD], rule[-SIZES:] = -1.0, -0.7, -6.0, 5.0
    return rule


def actions_of(rules: Floats, own: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the action of rule e where candidates have these features (E, J, OF_JOB): void is worth 0."""
    worth = np.concatenate([np.zeros((len(rules), 1)), np.einsum("ejf,ef->ej", own, rules)], axis=1)
    actions: npt.NDArray[np.int64] = np.where(masks, worth, -np.inf).argmax(1)
    return actions
