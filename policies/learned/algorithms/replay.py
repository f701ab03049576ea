"""A replay memory: rows of past steps, to learn from more than once and in another order.

A row is an entry of each of some named arrays (`observations`, `actions`, ...), whose names the recipe chooses.

    replay = PrioritizedReplay(100_000, seed=1)
    replay.add(rows)                      # {name: array (n, ...)}
    sample = replay.sample(64)            # .rows, .indices, .weights
    replay.update(sample.indices, abs(errors))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from policies.learned.algorithms.sum_tree import Floats, Indices, Tree

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ReplaySample:
    """Rows drawn with replacement."""

    rows: dict[str, npt.NDArray[Any]]
    indices: Indices
    """Positions of the rows, for `update`; valid until rows are added."""
    weights: Floats
    """Weights of the rows' errors, in (0, 1]: they correct for rows that are drawn more often than others."""


class PrioritizedReplay:
    """The last `capacity` rows, of which those of larger error are drawn more often.

    Source: Schaul et al., "Prioritized experience replay", ICLR 2016, proportional variant.

    Row i is drawn with probability P(i) = p_i^alpha / sum(p^alpha), p_i = |error| + `floor`; a new row has the largest p so far, so
    that each is seen. A sample is stratified: one row from each of as many equal shares of the sum. The weight of row i is
    (N P(i))^-beta over the largest that any row has; beta goes from `beta` to 1 in `anneal` samples, along a straight line.

    Invariants: the `len(self)` newest rows are there, in a ring whose next place is `_next`; the same seed, additions, updates and
    samples give the same rows, also through `state_dict`. The first addition settles names, shapes and dtypes. A row's leaf in
    `_sums` and `_least` is p^alpha; places that hold no row are never drawn.
    """

    def __init__(
        self, capacity: int, *, seed: int, alpha: float = 0.6, beta: float = 0.4, anneal: int, floor: float = 1e-6
    ) -> None:
        """`alpha` and `beta` default to the paper's for this variant. Raises ValueError for values that are out of range."""
        if capacity < 1:
            raise ValueError(f"a replay memory cannot have {capacity} rows; give 1 or more")
        if not (0 <= alpha <= 1 and 0 <= beta <= 1 and floor > 0 and anneal >= 1):
            raise ValueError(
                f"alpha is {alpha}, beta {beta}, floor {floor}, anneal {anneal}; give alpha and beta from 0 to 1, a floor above 0, "
                "and an anneal of 1 or more"
            )
        self.capacity = capacity
        self._columns: dict[str, npt.NDArray[Any]] = {}
        """Bound: the columns of a row, each of `capacity` rows."""
        self._count = 0
        self._next = 0
        self._rng = np.random.default_rng(seed)
        self._alpha = alpha
        self._beta = beta
        self._anneal = anneal
        self._floor = floor
        self._largest = 1.0
        self._samples = 0
        self._grow_trees()

    def __len__(self) -> int:
        return self._count

    @property
    def beta(self) -> float:
        """Exponent of the weights in the next sample."""
        return self._beta + (1.0 - self._beta) * min(self._samples / self._anneal, 1.0)

    def add(self, rows: Columns) -> Indices:
        """Keep these rows, in place of the oldest where the memory is full, with the largest priority so far.

        Returns where they stand now. Raises ValueError for other names or shapes than those of the first addition.
        """
        count = self._checked(rows)
        skipped = max(count - self.capacity, 0)
        places = (self._next + np.arange(skipped, count)) % self.capacity
        for name, column in self._columns.items():
            column[places] = rows[name][skipped:]
        self._next = (self._next + count) % self.capacity
        self._count = min(self._count + count, self.capacity)
        self._enter(places, np.full(len(places), self._largest))
        return places

    def sample(self, size: int) -> ReplaySample:
        """Draw `size` rows by their priorities. Raises ValueError where there are none."""
        if not self._count:
            raise ValueError("an empty replay memory has no rows to draw; add some first")
        beta, total = self.beta, self._sums.root
        indices = self._sums.find((np.arange(size) + self._rng.random(size)) * (total / size))
        # (N P)^-beta over the same of the row with the least P: N and the sum cancel out.
        weights = (self._sums[indices] / self._least.root) ** -beta
        self._samples += 1
        return ReplaySample({name: column[indices] for name, column in self._columns.items()}, indices, weights)

    def update(self, indices: Indices, errors: npt.NDArray[np.floating[Any]]) -> None:
        """Set the present errors of these rows. Where an index occurs twice, the last error counts. Raises ValueError for NaN."""
        priorities = np.abs(errors.astype(np.float64)) + self._floor
        if not np.isfinite(priorities).all():
            raise ValueError("an error is NaN or infinite: the training diverged; lower its learning rate")
        self._largest = max(self._largest, float(priorities.max(initial=0.0)))
        self._enter(indices, priorities)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a memory of the same capacity needs to continue: arrays, numbers and texts."""
        return {
            "columns": {name: column[: self._count].copy() for name, column in self._columns.items()},
            "capacity": self.capacity,
            "next": self._next,
            "rng": self._rng.bit_generator.state,
            "leaves": self._sums[np.arange(len(self))],
            "largest": self._largest,
            "samples": self._samples,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state_dict` returned. Raises ValueError for a memory of another capacity."""
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"the saved replay memory has room for {state['capacity']} rows, this one for {self.capacity}"
            )
        self._columns = {}
        self._count = 0
        if state["columns"]:
            self._count = self._checked(state["columns"])
            for name, column in self._columns.items():
                column[: self._count] = state["columns"][name]
        self._next = state["next"]
        self._rng.bit_generator.state = state["rng"]
        self._grow_trees()
        places = np.arange(len(self))
        self._sums[places] = self._least[places] = state["leaves"]
        self._largest, self._samples = state["largest"], state["samples"]

    def _checked(self, rows: Columns) -> int:
        """Return the number of rows. The first ones settle the columns."""
        counts = {len(array) for array in rows.values()}
        if len(counts) != 1:
            raise ValueError(f"arrays of {sorted(counts)} rows; give one or more, all of one length")
        if not self._columns:
            # Not zeros: memory is used page by page as rows arrive, not before.
            self._columns = {
                name: np.empty((self.capacity, *array.shape[1:]), array.dtype) for name, array in rows.items()
            }
        given = {name: (array.shape[1:], array.dtype) for name, array in rows.items()}
        known = {name: (column.shape[1:], column.dtype) for name, column in self._columns.items()}
        if given != known:
            raise ValueError(f"rows of {given}; this memory has {known}")
        return counts.pop()

    def _grow_trees(self) -> None:
        self._sums = Tree(self.capacity, np.add, 0.0)
        self._least = Tree(self.capacity, np.minimum, np.inf)

    def _enter(self, places: Indices, priorities: Floats) -> None:
        self._sums[places] = self._least[places] = priorities**self._alpha
