"""A linear rule in DL2's environment, whose weights a search has found: a control between the baselines and the learned agent.

In every slot each job first gets a pair. Then a pair goes to the job with the highest score, as long as one is above 0:

    score = a number for its type + a log(1 + hours left) + b (share of GPUs that are free) - log2(1 + workers)

The hours left are those at the requested size by the stated epochs and the average speed of the type, which the baselines see too.
`python -m simulator.papers.dl2.reproduction.rule_search` finds the weights.

Its simplest case is a table: a fixed number of pairs for each type (`FixedPairs`), which `--pairs` of that program finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from policies.learned.training.agents import Mask
from simulator.papers.dl2.rules.baselines import ElasticAgent
from simulator.traces.generators.dl2 import MODELS

NUM_WEIGHTS = len(MODELS) + 2
START = (*(2.0,) * len(MODELS), 0.0, 0.0)
"""Three pairs for every job."""
FOUND = (0.098, -0.111, 0.558, 2.26, 1.419, 3.122, 3.671, -0.214, -0.254, -0.471)
"""Weights that the search found in the setting of `reproduction.settings`, with its defaults."""
PAIRS = (1, 1, 1, 2, 2, 4, 7, 1)
"""Pairs for each type that the search found in that setting."""
_UP_TO = 0.05
"""Above log2 of a number of pairs: with so many a score is below 0, with one fewer above."""
_FIRST = 1e6
_HOUR_S = 3600.0


class LinearRule(ElasticAgent):
    """Linear rule: a pair for the job with the highest score, by weights that a search has found."""

    def __init__(self, weights: Sequence[float] = FOUND) -> None:
        """`weights` are one for each type, a and b. Raises ValueError for another number of them."""
        super().__init__()
        if len(weights) != NUM_WEIGHTS:
            raise ValueError(f"the rule has {NUM_WEIGHTS} weights, {len(weights)} were given")
        self.weights = np.array(weights)

    def choose(self, state: Any, mask: Mask) -> int | None:
        """Ties go to the job that arrived first."""
        jobs, types = self.env.shown.batch, len(MODELS)
        seen = state[: len(jobs)]
        workers = seen[:, self.env.shown.w]
        left_h = np.array([self.remaining_s(job) for job in jobs]) / _HOUR_S
        free = float(self.env.tasks.gpus.sum()) / self.env.cluster.num_gpus
        hours, room = self.weights[types:]
        scores = seen[:, :types] @ self.weights[:types] + hours * np.log1p(left_h) + room * free - np.log2(1 + workers)
        scores = np.where(workers == 0, scores + _FIRST, scores)
        order = np.argsort(-scores, kind="stable")
        return self.first(state, mask, order[scores[order] > 0].tolist())


class FixedPairs(LinearRule):
    """Fixed pairs: a number of pairs for each type of job, which a search has found, as far as there is room."""

    def __init__(self, pairs: Sequence[int] = PAIRS) -> None:
        """`pairs` are one or more for each type. Raises ValueError for another number of them."""
        super().__init__((*(log2(each) + _UP_TO for each in pairs), 0.0, 0.0))
