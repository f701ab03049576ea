"""The cross-entropy method: a search over the weights of a policy by comparing whole runs.

Sources: Rubinstein, "The cross-entropy method for combinatorial and continuous optimization" (1999); as policy search: Mannor,
Rubinstein and Gat, "The cross entropy method for fast policy search" (ICML 2003).

    draw n rows from independent normal distributions              the mean itself is the first row
    cost of each row, on the same traces for all                   common random numbers
    mean and spread move towards those of the rows with the lowest costs
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


class CrossEntropyMethod:
    """The distribution of weights. Invariant: `mean`, `spread` and the costs of this generation's rows so far are all that is
    carried from round to round."""

    def __init__(self, mean: Vector, spread: Vector, *, mean_step: float, spread_step: float) -> None:
        """The steps are those of mean and spread towards the best rows, from 0 to 1."""
        self.mean = mean
        self.spread = spread
        self._mean_step = mean_step
        self._spread_step = spread_step
        self.costs: Vector = np.zeros((0, 0))
        """A row for each drawn row, a column for each trace."""

    def draw(self, count: int, rng: np.random.Generator) -> Vector:
        """Draw `count` rows of weights; the first is the mean."""
        rows = self.mean + self.spread * rng.standard_normal((count, len(self.mean)))
        rows[0] = self.mean
        return np.asarray(rows)

    def add(self, costs: Vector, *, first: bool) -> None:
        """Keep the costs of the next rows of a generation; `first`: they are its first ones."""
        self.costs = costs if first else np.concatenate((self.costs, costs))

    def best(self, count: int) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return the rows with the lowest costs relative to the first row's, the best first, and these costs."""
        scores = (self.costs - self.costs[0]).mean(axis=1)
        rows = np.argsort(scores, kind="stable")[:count]
        return rows, scores[rows]

    def move(self, elite: Vector) -> None:
        """Move the distribution towards these rows."""
        spread = np.sqrt(np.mean((elite - self.mean) ** 2, axis=0))
        self.spread = self.spread + self._spread_step * (spread - self.spread)
        self.mean = self.mean + self._mean_step * (elite.mean(axis=0) - self.mean)

    def state_dict(self) -> dict[str, Vector]:
        """Return the whole state."""
        return {"mean": self.mean.copy(), "spread": self.spread.copy(), "costs": self.costs.copy()}

    def load_state_dict(self, state_dict: Mapping[str, Vector], /) -> None:
        """Continue from a state that `state_dict` returned."""
        self.mean, self.spread, self.costs = (state_dict[name].copy() for name in ("mean", "spread", "costs"))
