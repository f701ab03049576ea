"""Search for a rule, the linear part of the network, by CMA-ES.

Source: Hansen, "The CMA evolution strategy: a tutorial" (2016), as pycma has it. Draw rules from a normal distribution, play whole
episodes with each, all on the same traces, and move the distribution to where the best of them are. An episode's average JCT
measures a whole schedule, whereas Q-learning must estimate the value of one start among a thousand from returns that contain a
thousand others and all arrivals. So the search finds in minutes what Q-learning does not, and Q-learning begins with its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.feature_layout import IS_SPREAD, LOG_GPUS, LOG_TIME, OF_JOB, SIZES
from policies.learned.training.run.seeding import generator

Floats = npt.NDArray[np.float64]


class Search:
    """Invariant: the rules that it draws follow from the seed, the number of rules and the costs so far."""

    def __init__(self, rules: int, seed: int) -> None:
        """`rules` is the number of rules that are drawn at a time, at least 3."""
        self._rules = rules
        self._seed = seed
        self._begin()

    def _begin(self) -> None:
        import cma

        mean, deviation = first_rule(), np.full(OF_JOB, 0.4)
        deviation[IS_SPREAD], deviation[-SIZES:] = 2.0, 0.7
        self._costs: list[Floats] = []
        self._drawn: list[Floats] = []
        options = {
            "CMA_stds": deviation,
            "popsize": self._rules,
            "randn": self._normal,
            "seed": np.nan,
            "verbose": -10,
            "verb_log": 0,
        }
        self._evolution = cma.CMAEvolutionStrategy(mean, 0.5, options)

    @property
    def rounds(self) -> int:
        """Number of rounds that it has learned from."""
        return len(self._costs)

    @property
    def mean(self) -> Floats:
        """The best rule so far: the mean of the distribution. No single drawn rule is taken, since luck affects its costs."""
        return np.array(self._evolution.mean, dtype=np.float64)

    def draw(self) -> Floats:
        """Draw rules to be played (rules, OF_JOB)."""
        self._drawn = self._evolution.ask()
        return np.stack(self._drawn)

    def learn(self, costs: Floats) -> None:
        """Learn from the costs of each drawn rule on each trace (rules, traces): less is better, infinite if it did not finish."""
        self._learn_relative(_compared(costs))

    def _learn_relative(self, relative: Floats) -> None:
        self._evolution.tell(self._drawn, relative.tolist())
        self._costs.append(relative)

    def _normal(self, *shape: int) -> Floats:
        drawn: Floats = generator(self._seed, "rules", self.rounds).standard_normal(shape)
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two rounds."""
        return {"told": np.array(self._costs).reshape(-1, self._rules)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go on from such a state: draw and learn again, which takes no episodes."""
        self._begin()
        for relative in state["told"]:
            self.draw()
            self._learn_relative(relative)


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


def _compared(costs: Floats) -> Floats:
    """Return one number for each rule: its costs relative to the median of all, averaged over traces."""
    there = np.isfinite(costs)
    worst = np.abs(np.where(there, costs, 0.0)).max(axis=0, initial=1.0)
    costs = np.where(there, costs, 10.0 * worst)
    middle = np.median(costs, axis=0)
    relative: Floats = ((costs - middle) / np.maximum(np.abs(middle), 1e-9)).mean(axis=1)
    return relative
