"""The observation of GPUs: an array with the features of the job on each GPU.

Schedulers count GPUs; the grid gives each GPU a cell of an array and keeps it up to date as jobs come and go, so that an
observation costs a copy and no loop over the jobs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.float32]
CellValues: TypeAlias = "memoryview[float]"
"""The values of one cell, repeated for as many cells as a node has."""
ABSENT = -1.0
"""Value in the cell of an absent GPU: its node takes no jobs, or has fewer GPUs than the widest node."""
_Turn = tuple[float, int]
"""Start time of a job, and its place in order of submission."""


class GpuGrid:
    """An array whose left half shows the GPUs of each node, and whose right half shows the candidates given to `show`.

    Invariants: `free[n]` is what node n has free, and `total` the sum over the nodes that are up; bit n of `at_least[x]` is set
    exactly when node n is up and has x or more free, for x from 1 on (`at_least[0]`: all nodes); a cell of the left half holds the
    values of a job, zeros for a free GPU, ABSENT for an absent one. The jobs of a node stand from the left on, by start and then by
    submission: the array depends on the running jobs, their nodes and start times, and not on earlier jobs.

    Bound: its GPUs, and the jobs on them.
    """

    def __init__(self, gpus: Sequence[int], depth: int, width: int | None = None) -> None:
        """Begin with free nodes of so many GPUs; a cell has `depth` values, a node `width` cells (default: as the widest has)."""
        self.gpus = tuple(gpus)
        self.depth = depth
        self.width = max(gpus) if width is None else width
        self.array: Cells = np.zeros((len(gpus), 2 * self.width, depth), dtype=np.float32)
        """Axes: nodes, cells, values."""
        self.load = [0] * len(gpus)
        """For each node the sum of the weights of its jobs that send over the network."""
        self.free = list(gpus)
        self.total = sum(gpus)
        self.up = [True] * len(gpus)
        self.at_least = [0] * (self.width + 1)
        self._cells = cast(CellValues, self.array.reshape(-1).data)
        self._zeros = self._constant(0.0)
        self._absent = self._constant(ABSENT)
        self._on: list[list[tuple[_Turn, int, CellValues]]] = [[] for _ in gpus]
        """The jobs of each node from the left: their turn, their GPUs there, and the values of their cells."""
        self._turns: dict[int, tuple[_Turn, int, Sequence[int]]] = {}
        """For each job its turn, its weight and its nodes."""
        self._shown: list[int] = []
        self.at_least[0] = (1 << len(gpus)) - 1
        for node, count in enumerate(gpus):
            self._level(node, 0, count)
            missing = self.width - count
            self._cells[self._cell(node, count) : self._cell(node, self.width)] = self._absent[: missing * depth]

    def reset(self) -> None:
        """Remove all jobs and candidates, and set all nodes up."""
        for index in list(self._turns):
            self.give_back(index)
        for node in range(len(self.gpus)):
            self.set_node_up(node, True)
        self.show([])

    def numbers(self, values: Sequence[float]) -> CellValues:
        """Return the values of a cell in the form for `take` and `show`: once for each GPU that a node can have."""
        return memoryview(array("f", list(values) * self.width))

    def take(
        self,
        index: int,
        nodes: Sequence[int],
        counts: Sequence[int],
        numbers: CellValues,
        weight: int,
        since: float = 0,
    ) -> None:
        """Let the job, `index` by submission, occupy so many GPUs of each node; it started at `since`, in any consistent unit.

        `weight` is added to the load of each node, if there are several.
        """
        if len(nodes) == 1:
            weight = 0
        turn = (since, index)
        for node, count in zip(nodes, counts, strict=True):
            before = self.free[node]
            self.free[node] = before - count
            self.load[node] += weight
            if self.up[node]:
                self.total -= count
                self._level(node, before, before - count)
            here = self._on[node]
            place = len(here)
            while place and here[place - 1][0] > turn:
                place -= 1
            here.insert(place, (turn, count, numbers))
            self._draw(node, place)
        self._turns[index] = turn, weight, nodes

    def give_back(self, index: int) -> None:
        """Free what the job occupies; do nothing if it occupies nothing."""
        own = self._turns.pop(index, None)
        if own is None:
            return
        turn, weight, nodes = own
        for node in nodes:
            here = self._on[node]
            place = 0
            while here[place][0] != turn:
                place += 1
            count = here.pop(place)[1]
            before = self.free[node]
            self.free[node] = before + count
            self.load[node] -= weight
            blank = self._absent
            if self.up[node]:
                self.total += count
                self._level(node, before, before + count)
                blank = self._zeros
            end, size = self._draw(node, place), count * self.depth
            self._cells[end : end + size] = blank[:size]

    def _draw(self, node: int, place: int) -> int:
        """Fill the cells of the node's jobs from that one on. Returns where they end."""
        here, cells, depth = self._on[node], self._cells, self.depth
        begin = self._cell(node, 0)
        for which, (_, count, numbers) in enumerate(here):
            size = count * depth
            if which >= place:
                cells[begin : begin + size] = numbers[:size]
            begin += size
        return begin

    def set_node_up(self, node: int, up: bool) -> None:
        """Let the node take jobs from now on, or none."""
        if self.up[node] == up:
            return
        free = self.free[node]
        self._level(node, 0 if up else free, free if up else 0)
        self.total += free if up else -free
        self.up[node] = up
        size = free * self.depth
        end = self._cell(node, self.gpus[node])
        self._cells[end - size : end] = (self._zeros if up else self._absent)[:size]

    def show(self, shown: Sequence[tuple[Sequence[int], CellValues]]) -> None:
        """Set these cells of the right half to these values, all others to 0. If two entries share a cell, the first counts."""
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
        """Return the cell of the right half in that row, in the column of that share (from 1), in the form for `show`."""
        return self._cell(row, self.width + column - 1)

    def _cell(self, node: int, column: int) -> int:
        return (node * 2 * self.width + column) * self.depth

    def _constant(self, value: float) -> CellValues:
        return memoryview(array("f", [value] * (self.width * self.depth)))

    def _level(self, node: int, before: int, after: int) -> None:
        """Update `at_least` for a node that is up, whose free GPUs change."""
        bit, at_least = 1 << node, self.at_least
        for level in range(min(before, after) + 1, max(before, after) + 1):
            at_least[level] ^= bit
