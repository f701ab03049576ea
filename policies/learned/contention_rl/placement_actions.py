"""The action space of one candidate: how a number names a placement.

`PlacementActions` turn the free GPUs of the grid into a mask, and a number into nodes and shares. There are two kinds:

- `lists`, the paper's: the number names the nodes. With split `even` a list has 2^i nodes, which give equal shares (where the
  demand is no multiple, the freest of them give one GPU more); with `packed` it has any length, and the freest nodes give all
  that they have. All lists are in it, so it is for small clusters.
- `rules`, for clusters of any size: the number names a spread and a rule that finds the nodes. The rules are best-fit (the
  fewest free GPUs that suffice), freest (the most free GPUs), and quiet (the least traffic of the jobs that are there); ties
  go to the lowest index. With split `even` the spreads are 2^i nodes; with `packed` there is one, as many nodes as it takes:
  by consolidated best fit, or filling the freest or the quietest nodes one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from policies.learned.contention_rl.gpu_grid import GpuGrid
from policies.learned.contention_rl.spreads import (
    Spread,
    even_shares,
    node_lists,
    packed_shares,
    powers,
    spreads_of,
)

LISTS, RULES = "lists", "rules"
EVEN, PACKED = "even", "packed"
ANY, FEWEST = "any", "fewest"
"""The candidates that may start next: all that fit somewhere, or of those only the one of the fewest GPUs."""
NODE_RULES = ("best-fit", "freest", "quiet")
Where = tuple[list[int], list[int]]
"""Nodes, and the GPUs on each."""


class WaitingJob(Protocol):
    """A waiting job."""

    @property
    def gpus(self) -> int:
        """GPUs that it asks for."""


JobT = TypeVar("JobT", bound=WaitingJob)
BestFit = Callable[[JobT], Where | None]
"""Returns where consolidated best fit would place a job now; None where it does not fit."""


class PlacementActions(ABC, Generic[JobT]):
    """The placements of one candidate, by number.

    Invariant: `mask` has a 1 exactly where `place` finds nodes, and `possible` says whether there is one.
    """

    size: int
    """Number of actions."""

    def __init__(self, grid: GpuGrid, counts: Sequence[int]) -> None:
        """`counts` are the numbers of nodes over which a job may spread, the rows of the right half of the observation."""
        self._grid = grid
        self._counts = counts
        self._spreads: dict[int, tuple[Spread, ...]] = {}
        """Bound: the numbers of GPUs that jobs may ask for here."""

    def spreads(self, gpus: int) -> tuple[Spread, ...]:
        """Return the spreads of so many GPUs on the whole cluster."""
        spreads = self._spreads.get(gpus)
        if spreads is None:
            found = spreads_of(gpus, self._counts, self._grid.width)
            spreads = self._spreads[gpus] = tuple(each for each in found if each.fits(self._whole))
        return spreads

    @cached_property
    def _whole(self) -> list[int]:
        """The nodes that have x GPUs or more, free or not, in the form of the grid's `at_least`."""
        gpus = self._grid.gpus
        sizes = {has: sum(1 << node for node, there in enumerate(gpus) if there >= has) for has in set(gpus)}
        levels = range(self._grid.width + 1)
        return [sizes[min(enough)] if (enough := [has for has in sizes if has >= x]) else 0 for x in levels]

    def ever(self, gpus: int) -> bool:
        """Return whether so many GPUs could be placed on an empty cluster."""
        return bool(self.spreads(gpus))

    @abstractmethod
    def mask(self, job: JobT) -> bytes:
        """Return one byte for each number: 1 where the job can be placed like that now."""

    @abstractmethod
    def place(self, job: JobT, number: int) -> Where | None:
        """Return where that number puts the job; None where that is impossible."""

    @abstractmethod
    def possible(self, job: JobT) -> bool:
        """Return whether any number can place the job now."""


class _Even(PlacementActions[JobT]):
    """Equal shares on 2^i nodes."""

    def __init__(self, grid: GpuGrid) -> None:
        super().__init__(grid, powers(len(grid.gpus)))

    def possible(self, job: JobT) -> bool:
        """Return whether any spread fits."""
        grid, gpus = self._grid, job.gpus
        if gpus > grid.total:
            return False
        at_least = grid.at_least
        for spread in self._spreads.get(gpus) or self.spreads(gpus):
            if at_least[spread.least].bit_count() >= spread.nodes and spread.fits(at_least):
                return True
        return False


def placement_actions(kind: str, split: str, grid: GpuGrid, best_fit: BestFit[JobT]) -> PlacementActions[JobT]:
    """Return the actions of that kind and split over the grid's nodes. Raises EncoderError for too many lists."""
    if kind == LISTS:
        return EvenLists(grid) if split == EVEN else PackedLists(grid)
    return EvenRules(grid) if split == EVEN else PackedRules(grid, best_fit)


def ever_placed(split: str, nodes: Sequence[int], gpus: int) -> bool:
    """Return whether a job of so many GPUs could be placed on an empty cluster whose nodes have so many GPUs each."""
    return placement_actions(RULES, split, GpuGrid(nodes, 1), lambda _: None).ever(gpus)


def allowed(masks: Sequence[bytes], gpus: Sequence[int], starts: str) -> list[bytes]:
    """Return the masks after the rule `starts`, of candidates that ask for so many GPUs, the nearest to the head first."""
    if starts == ANY:
        return list(masks)
    fitting = [place for place, mask in enumerate(masks) if any(mask)]
    first = min(fitting, key=gpus.__getitem__, default=None)
    return [mask if place == first else bytes(len(mask)) for place, mask in enumerate(masks)]


class EvenLists(_Even[JobT]):
    """Lists of 2^i nodes with equal shares."""

    def __init__(self, grid: GpuGrid) -> None:
        super().__init__(grid)
        self._lists = node_lists(len(grid.gpus), tuple(self._counts))
        self.size = len(self._lists)

    def mask(self, job: JobT) -> bytes:
        """Return one byte for each list."""
        return self._lists.even_mask(job.gpus, self.spreads(job.gpus), self._grid.at_least)

    def place(self, job: JobT, number: int) -> Where | None:
        """Return the nodes of that list and the shares on them."""
        nodes, grid = self._lists.lists[number], self._grid
        for spread in self.spreads(job.gpus):
            if spread.nodes == len(nodes):
                if self._lists.bits[number] & ~grid.at_least[spread.least]:
                    return None
                shares = even_shares(spread, nodes, grid.free)
                return (list(nodes), shares) if shares else None
        return None


class _Packed(PlacementActions[JobT]):
    """Any number of nodes, filled one after the other: the GPUs need not be divided equally."""

    def __init__(self, grid: GpuGrid) -> None:
        super().__init__(grid, range(1, len(grid.gpus) + 1))

    def ever(self, gpus: int) -> bool:
        """Return whether the cluster has so many GPUs."""
        return gpus <= sum(self._grid.gpus)

    def possible(self, job: JobT) -> bool:
        """Return whether any action can place the job now: the freest nodes take whatever the total allows."""
        return job.gpus <= self._grid.total


class PackedLists(_Packed[JobT]):
    """Lists of any length, filled from their freest node on."""

    def __init__(self, grid: GpuGrid) -> None:
        super().__init__(grid)
        self._lists = node_lists(len(grid.gpus), tuple(self._counts))
        self.size = len(self._lists)

    def mask(self, job: JobT) -> bytes:
        """Return one byte for each list."""
        return self._lists.packed_mask(job.gpus, _usable(self._grid))

    def place(self, job: JobT, number: int) -> Where | None:
        """Return the nodes of that list and the shares on them."""
        nodes = self._lists.lists[number]
        shares = packed_shares(job.gpus, nodes, _usable(self._grid))
        return (list(nodes), shares) if shares else None


class EvenRules(_Even[JobT]):
    """A number of nodes, equal shares, and a rule that finds the nodes."""

    def __init__(self, grid: GpuGrid) -> None:
        super().__init__(grid)
        self.size = len(self._counts) * len(NODE_RULES)

    def mask(self, job: JobT) -> bytes:
        """Return one byte for each spread and rule; a spread is possible by all rules or by none."""
        mask = bytearray(self.size)
        rules = len(NODE_RULES)
        for spread in self.spreads(job.gpus):
            if spread.fits(self._grid.at_least):
                mask[spread.row * rules : (spread.row + 1) * rules] = b"\1" * rules
        return bytes(mask)

    def place(self, job: JobT, number: int) -> Where | None:
        """Return the nodes that the rule finds, larger shares first."""
        row, rule = divmod(number, len(NODE_RULES))
        grid = self._grid
        for spread in self.spreads(job.gpus):
            if spread.row == row and spread.fits(grid.at_least):
                key = _key(grid, NODE_RULES[rule])
                nodes = _first(grid.at_least[spread.share], key, spread.larger)
                taken = sum(1 << node for node in nodes)
                nodes += _first(grid.at_least[spread.least] & ~taken, key, spread.nodes - spread.larger)
                return nodes, [spread.share] * spread.larger + [spread.least] * (spread.nodes - spread.larger)
        return None


class PackedRules(_Packed[JobT]):
    """A rule finds as many nodes as needed."""

    size = len(NODE_RULES)

    def __init__(self, grid: GpuGrid, best_fit: BestFit[JobT]) -> None:
        super().__init__(grid)
        self._best_fit = best_fit

    def mask(self, job: JobT) -> bytes:
        """Return one byte for each rule."""
        enough = job.gpus <= self._grid.total
        return bytes([enough and self._best_fit(job) is not None, enough, enough])

    def place(self, job: JobT, number: int) -> Where | None:
        """Return the nodes that the rule finds."""
        rule = NODE_RULES[number]
        if rule == "best-fit":
            return self._best_fit(job)
        return _fill(self._grid, job.gpus, _key(self._grid, rule)) if job.gpus <= self._grid.total else None


def _usable(grid: GpuGrid) -> list[int]:
    """Return the GPUs that each node has free for jobs: 0 where it is down."""
    return [free if up else 0 for free, up in zip(grid.free, grid.up, strict=True)]


def _key(grid: GpuGrid, rule: str) -> Callable[[int], tuple[int, int]]:
    """Return the rule's sort key of nodes, least first."""
    free, load = grid.free, grid.load
    if rule == "best-fit":
        return lambda node: (free[node], node)
    if rule == "freest":
        return lambda node: (-free[node], node)
    return lambda node: (load[node], node)


def _first(nodes: int, key: Callable[[int], tuple[int, int]], count: int) -> list[int]:
    """Return the first `count` nodes of a set."""
    return sorted(_members(nodes), key=key)[:count]


def _members(nodes: int) -> list[int]:
    found = []
    while nodes:
        bit = nodes & -nodes
        found.append(bit.bit_length() - 1)
        nodes ^= bit
    return found


def _fill(grid: GpuGrid, gpus: int, key: Callable[[int], tuple[int, int]]) -> Where:
    nodes: list[int] = []
    counts: list[int] = []
    for node in _first(grid.at_least[1], key, len(grid.gpus)):
        share = min(grid.free[node], gpus)
        nodes.append(node)
        counts.append(share)
        gpus -= share
        if not gpus:
            break
    return nodes, counts
