"""Layouts of many jobs by numbers of nodes alone.

Whether jobs fit one after the other by consolidated best fit, and how many nodes have how many GPUs free then, does not depend on
which nodes these are, as long as each job may use each node and only GPUs are short. So a layout that is made anew for every
running job that stays (`policies.selection.select`) needs only these numbers, and the nodes follow once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.placement.best_fit import Capacity
from policies.placement.requests import Parts, Request

_BITS = 24
"""Bits of each number of nodes, the highest of which is never needed: there are fewer than 8 million nodes and shares."""
_DIGIT, _HIGH = (1 << _BITS) - 1, 1 << _BITS - 1
"""All bits of a number, and the highest one."""
_MEMBERS = 8
"""Jobs of a block, and blocks of the next larger one: their effect on the numbers is remembered."""

Counts = int
"""Number of nodes by free GPUs: the digits of one integer, the lowest for one free GPU. Nodes without any do not count."""


def counts_of(levels: Sequence[int], nodes: int) -> Counts:
    """Return the numbers of these nodes; `levels` are the nodes by free GPUs, as bits."""
    counts = 0
    for level in reversed(levels[1:]):
        counts = counts << _BITS | (level & nodes).bit_count()
    return counts


def _one(free: int) -> Counts:
    """Return the count of one node with so many free GPUs."""
    return 1 << (free - 1) * _BITS if free else 0


def _gpus_of(counts: Counts) -> int:
    """Return the free GPUs of all nodes together."""
    gpus, free = 0, 1
    while counts:
        gpus += free * (counts & _DIGIT)
        counts >>= _BITS
        free += 1
    return gpus


def placed(counts: Counts, parts: Parts) -> Counts | None:
    """Return what a job leaves; None if it does not fit. Its shares go to different nodes."""
    used = 0
    for share, count in parts:
        for _ in range(count):
            fitting = counts >> (share - 1) * _BITS
            if not fitting:
                return None
            beyond = ((fitting & -fitting).bit_length() - 1) // _BITS
            counts -= 1 << (share + beyond - 1) * _BITS
            if beyond:
                used += 1 << (beyond - 1) * _BITS
    return counts + used


class _Job:
    """A job, as the smallest part of a layout."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.shares = sum(count for _, count in parts)

    def placed(self, counts: Counts) -> Counts | None:
        """Return what the job leaves; None if it does not fit."""
        return placed(counts, self._parts)


class _Block:
    """Successive jobs or blocks, and their effect on the numbers from which they began.

    Two numbers of nodes have the same effect where they do not run out within the block. Those with fewer free GPUs do not if they
    are as many as the shares of its jobs: such digits are all alike in a key. Those with most free GPUs (the highest digit) are
    taken last and none is added, so the key leaves them out: if they run out, the effect would leave less than none.

    Bound: lives for one decision.
    """

    def __init__(self, members: Sequence[_Job] | Sequence[_Block], top: int) -> None:
        self._members = members
        self.shares: int = sum(member.shares for member in members)
        digits = sum(_one(free) for free in range(1, top))
        self._below = _one(top) - 1
        self._lacking = digits * (_HIGH - self.shares)
        self._highest_bits = digits * _HIGH
        self._changes: dict[Counts, int] = {}

    def placed(self, counts: Counts) -> Counts | None:
        """Return what the jobs leave; None if one does not fit."""
        key = counts & self._below
        plenty = (key + self._lacking) & self._highest_bits
        if plenty:
            key = key & ~(plenty // _HIGH * _DIGIT) | plenty
        change = self._changes.get(key)
        if change is None:
            left = _all_placed(counts, self._members)
            if left is not None:
                self._changes[key] = left - counts
            return left
        return counts + change if counts + change >= 0 else None


def _all_placed(counts: Counts, members: Sequence[_Job] | Sequence[_Block]) -> Counts | None:
    """Return what these leave, one after the other; None if one does not fit."""
    for member in members:
        left = member.placed(counts)
        if left is None:
            return None
        counts = left
    return counts


class _Layout:
    """Jobs that all may use the same nodes. Invariant: laid out in order on `base`, they leave `free`, which are `free_gpus`.

    Bound: lives for one decision.
    """

    def __init__(self, base: Counts, top: int) -> None:
        self.base = base
        self.free = base
        self.free_gpus = _gpus_of(base)
        self._top = top
        self._jobs: list[_Job] = []
        self._blocks: list[list[_Block]] = []
        """Blocks of jobs, blocks of these blocks, and so on: what comes after those of the next size."""

    def add(self, parts: Parts) -> bool:
        """Add a job behind the others, if it fits."""
        left = placed(self.free, parts)
        if left is None:
            return False
        self.free = left
        self.free_gpus -= sum(share * count for share, count in parts)
        self._jobs.append(_Job(parts))
        if len(self._jobs) == _MEMBERS:
            self._add_block(_Block(self._jobs, self._top))
            self._jobs = []
        return True

    def _add_block(self, block: _Block) -> None:
        for blocks in self._blocks:
            blocks.append(block)
            if len(blocks) < _MEMBERS:
                return
            block = _Block(blocks.copy(), self._top)
            blocks.clear()
        self._blocks.append([block])

    def left_on(self, base: Counts) -> Counts | None:
        """Return what the jobs leave of another base; None if one does not fit."""
        left: Counts | None = base
        for blocks in reversed(self._blocks):
            left = None if left is None else _all_placed(left, blocks)
        return None if left is None else _all_placed(left, self._jobs)


class CountedLayout:
    """Newcomers in the order in which they were selected, laid out by numbers of nodes.

    Invariants: each newcomer may use either the same nodes as another one or none of its nodes, takes no node for itself, and finds
    CPUs and memory wherever it finds GPUs. So these newcomers fit exactly if `Capacity.lay_out` returns their fits.

    Bound: lives for one decision.
    """

    def __init__(self, base: Capacity) -> None:
        """Begin without newcomers, on the capacity that the selected running jobs leave now."""
        self._base = base
        self._layouts: dict[int, _Layout] = {}
        """By nodes."""
        self._failed: set[int] = set()
        """Classes of jobs that do not fit now."""
        self._limited = base.may_lack_cpus_or_memory()
        self.rows: list[int] = []

    def counts_on(self, request: Request) -> bool:
        """Return whether jobs with that request can be among the newcomers."""
        if request.exclusive or (request.limited and self._limited):
            return False
        return request.nodes in self._layouts or not any(request.nodes & nodes for nodes in self._layouts)

    def offer(self, row: int, key: int, request: Request) -> None:
        """Add that job of that class, which `counts_on`, if it fits behind the others."""
        if key in self._failed:
            return
        layout = self._layouts.get(request.nodes)
        if layout is None:
            levels = self._base.levels
            layout = self._layouts[request.nodes] = _Layout(counts_of(levels, request.nodes), len(levels) - 1)
        if request.parts and layout.add(request.parts):
            self.rows.append(row)
        else:
            self._failed.add(key)

    def keep(self, changes: Sequence[tuple[int, int, int]]) -> bool:
        """Keep a running job that changes the free GPUs of nodes like that (`Capacity.changes`), if all newcomers still fit."""
        found: list[tuple[_Layout, Counts, Counts, int]] = []
        for nodes, layout in self._layouts.items():
            there = [(before, after) for node, before, after in changes if nodes >> node & 1]
            lost = sum(before - after for before, after in there)
            if not lost:
                continue
            if lost > layout.free_gpus:
                return False
            base = layout.base + sum(_one(after) - _one(before) for before, after in there)
            left = layout.left_on(base)
            if left is None:
                return False
            found.append((layout, base, left, lost))
        for layout, base, left, lost in found:
            layout.base, layout.free = base, left
            layout.free_gpus -= lost
        self._failed.clear()
        return True
