"""Which job is on which GPU, as the numbers that an agent sees.

The engine counts GPUs; the board gives each of them a cell of an array and keeps it up to date as jobs come and go, so that an
observation costs a copy and not a look at every job.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.float32]
Numbers: TypeAlias = "memoryview[float]"
"""One cell's numbers, repeated for as many cells as a node has."""
ABSENT = -1.0
"""In the cell of a GPU that is not there: its node is down, or has fewer GPUs than the widest."""


class Board:
    """The left half shows the GPUs of each node, the right half whatever the caller shows there.

    Invariants: `free[n]` is what node n has free; bit n of `at_least[x]` is set exactly when node n is up and has x or more
    free, for x from 1 on (`at_least[0]`: all nodes); a cell of the left half holds the numbers of the job that holds the GPU,
    zeros where nobody does, ABSENT where nobody can. A job takes the lowest free GPUs of its nodes.
    """

    def __init__(self, gpus: Sequence[int], depth: int) -> None:
        """Nodes with so many GPUs, all free; `depth` numbers a cell."""
        self.gpus = tuple(gpus)
        self.depth = depth
        self.width = max(gpus)
        self.array: Cells = np.zeros((len(gpus), 2 * self.width, depth), dtype=np.float32)
        """Nodes, cells, numbers."""
        self.load = [0] * len(gpus)
        """Of each node: the sum of what jobs that send over the network were said to weigh."""
        self.free = list(gpus)
        self.up = [True] * len(gpus)
        self.at_least = [0] * (self.width + 1)
        self._cells = cast(Numbers, self.array.reshape(-1).data)
        self._zeros = self._constant(0.0)
        self._absent = self._constant(ABSENT)
        self._open = [(1 << width) - 1 for width in gpus]
        self._held: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
        self._shown: list[int] = []
        self.at_least[0] = (1 << len(gpus)) - 1
        for node, count in enumerate(gpus):
            self._level(node, 0, count)
            missing = self.width - count
            self._cells[self._cell(node, count) : self._cell(node, self.width)] = self._absent[: missing * depth]

    def reset(self) -> None:
        """All free and up, nobody anywhere, nothing shown."""
        for index in list(self._held):
            self.give_back(index)
        for node in range(len(self.gpus)):
            self.set_up(node, True)
        self.show([])

    def numbers(self, values: Sequence[float]) -> Numbers:
        """One cell's numbers as `take` and `show` want them: once for each GPU that a node can have."""
        return memoryview(array("f", list(values) * self.width))

    def take(self, index: int, nodes: Sequence[int], counts: Sequence[int], numbers: Numbers, weight: int) -> None:
        """The job holds so many GPUs of each node from now on. `weight` adds to the load of each, if they are several."""
        runs: list[tuple[int, int, int]] = []
        if len(nodes) == 1:
            weight = 0
        for place, node in enumerate(nodes):
            count = counts[place]
            before = self.free[node]
            self.free[node] = before - count
            self.load[node] += weight
            self._level(node, before, before - count)
            self._fill(node, count, numbers, runs)
        self._held[index] = (weight, runs)

    def _fill(self, node: int, count: int, numbers: Numbers, runs: list[tuple[int, int, int]]) -> None:
        depth = self.depth
        while count:
            free = self._open[node]
            first = (free & -free).bit_length() - 1
            length = 1
            while length < count and free >> (first + length) & 1:
                length += 1
            self._open[node] ^= ((1 << length) - 1) << first
            begin = self._cell(node, first)
            self._cells[begin : begin + length * depth] = numbers[: length * depth]
            runs.append((node, first, length))
            count -= length

    def give_back(self, index: int) -> None:
        """The job holds nothing any more; nothing happens if it held nothing."""
        held = self._held.pop(index, None)
        if held is None:
            return
        weight, runs = held
        last = -1
        for node, first, length in runs:
            before = self.free[node]
            self.free[node] = before + length
            self._open[node] |= ((1 << length) - 1) << first
            begin, size = self._cell(node, first), length * self.depth
            if self.up[node]:
                self._level(node, before, before + length)
                self._cells[begin : begin + size] = self._zeros[:size]
            else:
                self._cells[begin : begin + size] = self._absent[:size]
            if node != last:
                self.load[node] -= weight
                last = node

    def set_up(self, node: int, up: bool) -> None:
        """The node takes jobs from now on, or takes none."""
        if self.up[node] == up:
            return
        blank = self._zeros if up else self._absent
        self._level(node, 0 if up else self.free[node], self.free[node] if up else 0)
        self.up[node] = up
        for gpu in range(self.gpus[node]):
            if self._open[node] >> gpu & 1:
                begin = self._cell(node, gpu)
                self._cells[begin : begin + self.depth] = blank[: self.depth]

    def show(self, shown: Sequence[tuple[Sequence[int], Numbers]]) -> None:
        """Of the right half, these cells hold these numbers, all others zeros. Where two want one cell, the first gets it."""
        cells, depth = self._cells, self.depth
        blank = self._zeros[:depth]
        for begin in self._shown:
            cells[begin : begin + depth] = blank
        self._shown = []
        for begins, numbers in reversed(shown):
            one = numbers[:depth]
            for begin in begins:
                cells[begin : begin + depth] = one
            self._shown.extend(begins)

    def slot(self, row: int, column: int) -> int:
        """The cell of the right half in that row, in the column of that share (from 1), as `show` wants it."""
        return self._cell(row, self.width + column - 1)

    def _cell(self, node: int, column: int) -> int:
        return (node * 2 * self.width + column) * self.depth

    def _constant(self, value: float) -> Numbers:
        return memoryview(array("f", [value] * (self.width * self.depth)))

    def _level(self, node: int, before: int, after: int) -> None:
        """The node that is up had so many free, and now has so many."""
        bit, at_least = 1 << node, self.at_least
        for level in range(min(before, after) + 1, max(before, after) + 1):
            at_least[level] ^= bit
