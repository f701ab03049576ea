"""Search for a rule: the linear part of the network alone, by the cross-entropy method.

Source: Rubinstein, "The cross-entropy method for combinatorial and continuous optimization" (1999). Draw rules from a normal
distribution, play whole episodes with each, all on the same traces, and move the distribution to the best of them. An episode's
average JCT tells of a whole way to schedule, where Q-learning has to tell the worth of one start among a thousand from returns that
a thousand others and all arrivals are in: so the search finds in minutes what the other does not, and the other begins from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.features import OF_JOB, SIZES

Floats = npt.NDArray[np.float64]
LOG_TIME, LOG_GPUS, IS_SPREAD = 0, 14, 6
"""Among the features of a candidate: log of its ideal time, of its GPUs, and whether it would be scattered now."""


@dataclass
class Search:
    """Invariant: rules are drawn from a normal distribution with this mean and these deviations, each weight by itself."""

    mean: Floats
    deviation: Floats

    @staticmethod
    def begin() -> Search:
        """From shortest first, whoever would be scattered waits: most rules that are drawn from there can be lived with."""
        mean, deviation = np.zeros(OF_JOB), np.full(OF_JOB, 0.4)
        mean[LOG_TIME], mean[LOG_GPUS], mean[IS_SPREAD], mean[-SIZES:] = -1.0, -0.7, -6.0, 5.0
        deviation[IS_SPREAD], deviation[-SIZES:] = 2.0, 0.7
        return Search(mean, deviation)

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """So many rules; the first is the mean."""
        rules = self.mean + self.deviation * rng.standard_normal((count, OF_JOB))
        rules[0] = self.mean
        return rules

    def learn(self, rules: Floats, costs: Floats, elite: int) -> None:
        """Costs of each rule on each trace (rules, traces), lower is better: the best rules count, compared trace by trace."""
        middle = np.median(costs, axis=0)
        relative = ((costs - middle) / np.abs(middle)).mean(axis=1)
        best = rules[np.argsort(relative, kind="stable")[:elite]]
        self.mean = 0.3 * self.mean + 0.7 * best.mean(axis=0)
        # A little is added, so that it does not stop before it is there.
        spread = np.sqrt(best.var(axis=0) + 0.005)
        self.deviation = 0.4 * self.deviation + 0.6 * spread

    def state_dict(self) -> dict[str, Any]:
        """Where it stands."""
        return {"mean": self.mean.copy(), "deviation": self.deviation.copy()}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go on from there."""
        self.mean, self.deviation = state["mean"].copy(), state["deviation"].copy()


def actions_of(rules: Floats, own: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """What rule e does where candidates have these features (E, J, OF_JOB): void is worth 0."""
    worth = np.concatenate([np.zeros((len(rules), 1)), np.einsum("ejf,ef->ej", own, rules)], axis=1)
    actions: npt.NDArray[np.int64] = np.where(masks, worth, -np.inf).argmax(1)
    return actions
