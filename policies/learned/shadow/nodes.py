"""Free GPUs of the shadow's nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from policies.model import ClusterState, IntColumn
from policies.placement.requests import Parts

Place = tuple[tuple[int, int], ...]
"""(node, GPUs there) for each share of a job."""


class ShadowNodes:
    """Free GPUs by node, for consolidated best fit as in `policies.placement.best_fit`, of GPUs alone.

    Invariant: bit n is set in exactly one level, that of the free GPUs of node n, and in none where it has none. CPUs and memory do
    not count: the shadow may start a job that would not fit, so it is never worse than the rule for this reason.
    """

    def __init__(self, state: ClusterState) -> None:
        """Begin with empty nodes."""
        self.names = state.nodes.names
        self._size = _sizes(state).tolist()
        self._free = self._size.copy()
        """Bound: the nodes."""
        self._levels = _levels(self._free, self._size)

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = object.__new__(type(self))
        twin.names, twin._size, twin._free, twin._levels = self.names, self._size, self._free[:], self._levels[:]
        return twin

    def resize(self, state: ClusterState) -> bool:
        """Take over which GPUs jobs of the queue may have now; return whether these are others than before."""
        size = _sizes(state).tolist()
        if size == self._size:
            return False
        self._free = [free + new - old for free, new, old in zip(self._free, size, self._size, strict=True)]
        self._size, self._levels = size, _levels(self._free, size)
        return True

    def place(self, parts: Parts, nodes: int) -> Place | None:
        """Return where a job of these shares goes on the nodes of that mask, and take it; None if it does not fit."""
        chosen: list[tuple[int, int]] = []
        if not parts:
            return None
        for share, count in parts:
            missing = count
            for free in range(share, len(self._levels)):
                while missing and (candidates := self._levels[free] & nodes):
                    bit = candidates & -candidates
                    nodes ^= bit
                    chosen.append((bit.bit_length() - 1, share))
                    missing -= 1
            if missing:
                return None
        place = tuple(chosen)
        self.take(place)
        return place

    def take(self, place: Iterable[tuple[int, int]]) -> None:
        """Occupy these GPUs."""
        for node, gpus in place:
            self._set(node, self._free[node] - gpus)

    def give_back(self, place: Iterable[tuple[int, int]]) -> None:
        """Free these GPUs."""
        for node, gpus in place:
            self._set(node, self._free[node] + gpus)

    def _set(self, node: int, free: int) -> None:
        bit, before = 1 << node, self._free[node]
        self._free[node] = free
        if before > 0:
            self._levels[before] ^= bit
        if free > 0:
            self._levels[free] ^= bit


def _sizes(state: ClusterState) -> IntColumn:
    """Return the GPUs of each node that jobs of the queue may have."""
    nodes = state.nodes
    return (nodes.gpus - nodes.foreign_gpus).clip(0) * nodes.available


def _levels(free: list[int], size: list[int]) -> list[int]:
    by_level = [0] * (max(size, default=0) + 1)
    for node, gpus in enumerate(free):
        if gpus > 0:
            by_level[gpus] |= 1 << node
    return by_level
