"""A binary tree over an array of numbers, in numpy: every node is the sum, or the least, of the two below it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]


class Tree:
    """The tree. Invariant: each inner node is exactly the join of its two children, so that rounding errors do not accumulate.

    Node 1 is the root, node i has children 2i and 2i + 1, leaf j is node `_leaves` + j.
    """

    def __init__(self, size: int, join: np.ufunc, neutral: float) -> None:
        """`join` is np.add or np.minimum, `neutral` its neutral element, which is the value of leaves that were not set."""
        self._join = join
        self._depth = max(size - 1, 0).bit_length()
        self._leaves = 1 << self._depth
        self._nodes = np.full(2 * self._leaves, neutral)

    @property
    def root(self) -> float:
        """The join of all leaves."""
        return float(self._nodes[1])

    def __getitem__(self, leaves: Indices) -> Floats:
        found: Floats = self._nodes[leaves + self._leaves]
        return found

    def __setitem__(self, leaves: Indices, values: Floats) -> None:
        nodes = leaves + self._leaves
        self._nodes[nodes] = values
        for _ in range(self._depth):
            # A node that occurs twice is computed twice, with the same result: that costs less than to find it.
            nodes = nodes >> 1
            self._nodes[nodes] = self._join(self._nodes[2 * nodes], self._nodes[2 * nodes + 1])

    def find(self, targets: Floats) -> Indices:
        """Return for each target the leaf where the sum from the left first exceeds it (in a tree of sums); never a leaf of 0."""
        nodes = np.ones(len(targets), dtype=np.int64)
        rest = targets.copy()
        for _ in range(self._depth):
            left = self._nodes[2 * nodes]
            # Rounding may lead a target past the last leaf that is not 0; then it stays before it.
            goes_right = (rest >= left) & (self._nodes[2 * nodes + 1] > 0)
            rest -= np.where(goes_right, left, 0.0)
            nodes = 2 * nodes + goes_right
        return nodes - self._leaves
