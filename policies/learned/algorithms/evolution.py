"""CMA-ES over a vector of numbers, whose costs are measured on the same traces.

Source: Hansen, "The CMA evolution strategy: a tutorial" (2016), as pycma has it.

    rows = evolution.draw()                    # (population, n)
    costs = ...                                # (population, traces): every row on the same traces
    evolution.learn(costs)

Costs are compared trace by trace: a row counts by its difference from the median row on the same trace, relative to that. So
traces of any size have the same weight, and infinite costs (a run that did not finish) are ranked last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Evolution:
    """Searches by CMA-ES. Invariant: the rows that it draws follow from `rngs`, the first mean and deviations, the population and
    the costs so far."""

    def __init__(
        self,
        mean: Floats,
        deviation: Floats,
        population: int,
        rngs: Callable[[int], np.random.Generator],
        *,
        step: float = 0.5,
    ) -> None:
        """`deviation` scales each number's spread, `step` all of them. `population` rows are drawn at a time, at least 3.

        `rngs` returns the source of random numbers of a round, the same whenever it is called with that round's number.
        """
        self._first = mean.copy(), deviation.copy(), step
        self._population = population
        self._rngs = rngs
        self._begin()

    def _begin(self) -> None:
        import cma

        mean, deviation, step = self._first
        self._costs: list[Floats] = []
        """Relative costs of each round. Bound: the rounds of one search."""
        self._drawn: list[Floats] = []
        options = {
            "CMA_stds": deviation,
            "popsize": self._population,
            "randn": self._normal,
            "seed": np.nan,
            "verbose": -10,
            "verb_log": 0,
        }
        self._strategy = cma.CMAEvolutionStrategy(mean, step, options)

    @property
    def rounds(self) -> int:
        """Number of rounds that it has learned from."""
        return len(self._costs)

    @property
    def mean(self) -> Floats:
        """The best so far: the mean of the distribution. No single drawn row is taken, since luck affects its costs."""
        return np.array(self._strategy.mean, dtype=np.float64)

    def draw(self) -> Floats:
        """Draw rows (population, n)."""
        self._drawn = self._strategy.ask()
        return np.stack(self._drawn)

    def learn(self, costs: Floats) -> None:
        """Learn from the cost of each drawn row on each trace (population, traces): less is better, infinite for an unfinished
        run."""
        self._learn_relative(relative_costs(costs))

    def _learn_relative(self, relative: Floats) -> None:
        self._strategy.tell(self._drawn, relative.tolist())
        self._costs.append(relative)

    def _normal(self, *shape: int) -> Floats:
        drawn: Floats = self._rngs(self.rounds).standard_normal(shape)
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two rounds."""
        return {"told": np.array(self._costs).reshape(-1, self._population)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue from a state that `state_dict` returned: draw and learn again, which takes no episodes."""
        self._begin()
        for relative in state["told"]:
            self.draw()
            self._learn_relative(relative)


def relative_costs(costs: Floats) -> Floats:
    """Return one number for each row: its costs relative to the median of all rows, averaged over traces."""
    there = np.isfinite(costs)
    worst = np.abs(np.where(there, costs, 0.0)).max(axis=0, initial=1.0)
    costs = np.where(there, costs, 10.0 * worst)
    middle = np.median(costs, axis=0)
    relative: Floats = ((costs - middle) / np.maximum(np.abs(middle), 1e-9)).mean(axis=1)
    return relative
