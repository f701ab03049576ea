"""Search for a rule by CMA-ES (`algorithms.evolution`).

Each drawn rule plays whole episodes, all rules on the same traces. An episode's average JCT
measures a whole schedule, whereas Q-learning must estimate the value of one start among a thousand from returns that contain a
thousand others and all arrivals. So the search finds in minutes what Q-learning does not.
"""

from __future__ import annotations

import numpy as np

from policies.learned.algorithms.evolution import Evolution
from policies.learned.sched2.state.feature_columns import IS_SPREAD, OF_JOB, SIZES
from policies.learned.sched2.state.first_rule import first_rule
from policies.learned.training.run.seeding import generator


def search(rules: int, seed: int) -> Evolution:
    """Return a search that draws so many rules at a time, at least 3."""
    deviation = np.full(OF_JOB, 0.4)
    deviation[IS_SPREAD], deviation[-SIZES:] = 2.0, 0.7
    return Evolution(first_rule(), deviation, rules, lambda number: generator(seed, "rules", number))
