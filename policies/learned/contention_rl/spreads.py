"""Divisions of a job's GPUs among nodes, and the sets of nodes for them.

Everything here is pure, without an engine or a state. `low` and `high` are sets of nodes as integers whose bit n stands for node n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TypeVar

import numpy as np

from policies.errors import EncoderError

MOST_LISTS = 4096
"""Most node lists of one candidate: a larger action space could not be learned."""
_MOST_CACHED = 50_000
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Spread:
    """A number of nodes with nearly equal shares: `larger` of them give `share` GPUs, the others one less.

    Where the demand is a multiple of the nodes all give the same, as in the paper.
    """

    row: int
    """Row of the spread in the right half of the observation; its column is `share`."""
    nodes: int
    share: int
    larger: int

    @property
    def least(self) -> int:
        """The smallest share."""
        return self.share if self.larger == self.nodes else self.share - 1

    def fits(self, at_least: Sequence[int]) -> bool:
        """Return whether some nodes can give it; `at_least[x]` is the set of nodes with x or more GPUs free."""
        return at_least[self.least].bit_count() >= self.nodes and at_least[self.share].bit_count() >= self.larger


def spreads_of(gpus: int, counts: Sequence[int], widest: int) -> tuple[Spread, ...]:
    """Return the spreads of so many GPUs over each number of nodes in `counts` that nodes of at most `widest` GPUs can give."""
    found = []
    for row, nodes in enumerate(counts):
        share = -(-gpus // nodes)
        if gpus >= nodes and share <= widest:
            found.append(Spread(row, nodes, share, gpus - (share - 1) * nodes))
    return tuple(found)


def powers(nodes: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to the number of nodes."""
    return tuple(1 << power for power in range(nodes.bit_length()))


class NodeLists:
    """All lists of nodes that an action may name, by length and then in order. Bound: `_MOST_CACHED` masks of each kind."""

    def __init__(self, nodes: int, counts: Sequence[int]) -> None:
        """Make all lists. Raises EncoderError where there are too many."""
        total = sum(comb(nodes, count) for count in counts)
        if total > MOST_LISTS:
            raise EncoderError(
                f"nodes='lists' makes {total} lists of {nodes} nodes, more than {MOST_LISTS}; give nodes='rules'"
            )
        self.lists = [chosen for count in counts for chosen in combinations(range(nodes), count)]
        self.bits = [sum(1 << node for node in chosen) for chosen in self.lists]
        self._of_length: dict[int, list[int]] = {count: [] for count in counts}
        for chosen, bits in zip(self.lists, self.bits, strict=True):
            self._of_length[len(chosen)].append(bits)
        self._counts = tuple(counts)
        self._members = np.array([[node in chosen for node in range(nodes)] for chosen in self.lists], dtype=np.bool_)
        self._even: dict[tuple[int, ...], bytes] = {}
        self._parts: dict[tuple[int, int, int, int], bytes] = {}
        self._packed: dict[tuple[int, ...], bytes] = {}

    def __len__(self) -> int:
        return len(self.lists)

    def even_mask(self, gpus: int, spreads: Sequence[Spread], at_least: Sequence[int]) -> bytes:
        """Return one byte for each list: 1 where its nodes can give the spread of that many nodes."""
        key = (gpus, *at_least)
        mask = self._even.get(key)
        if mask is None:
            by_nodes = {spread.nodes: spread for spread in spreads}
            mask = b"".join([self._even_part(count, by_nodes.get(count), at_least) for count in self._counts])
            _keep(self._even, key, mask)
        return mask

    def _even_part(self, count: int, spread: Spread | None, at_least: Sequence[int]) -> bytes:
        if spread is None:
            return bytes(len(self._of_length[count]))
        key = (count, at_least[spread.least], at_least[spread.share], spread.larger)
        part = self._parts.get(key)
        if part is None:
            _, low, high, larger = key
            part = bytes([not bits & ~low and (bits & high).bit_count() >= larger for bits in self._of_length[count]])
            _keep(self._parts, key, part)
        return part

    def packed_mask(self, gpus: int, free: Sequence[int]) -> bytes:
        """Return one byte for each list: 1 where its nodes have enough free together, and none of them is superfluous."""
        key = (gpus, *free)
        mask = self._packed.get(key)
        if mask is None:
            has = np.array(free)
            together = self._members @ has
            least = np.where(self._members, has, 1 << 40).min(axis=1)
            mask = ((together >= gpus) & (together - least < gpus)).tobytes()
            _keep(self._packed, key, mask)
        return mask


@lru_cache(maxsize=8)
def node_lists(nodes: int, counts: tuple[int, ...]) -> NodeLists:
    """Return the lists of so many nodes; the masks in their cache hold for every grid. Raises EncoderError."""
    return NodeLists(nodes, counts)


def even_shares(spread: Spread, nodes: Sequence[int], free: Sequence[int]) -> list[int] | None:
    """Return what each of these nodes gives; the freest give the larger shares, the first on ties. None if they cannot."""
    counts = [spread.least] * len(nodes)
    if spread.larger < len(nodes):
        for place in sorted(range(len(nodes)), key=lambda place: -free[nodes[place]])[: spread.larger]:
            counts[place] = spread.share
    if len(nodes) != spread.nodes or any(free[node] < gpus for node, gpus in zip(nodes, counts, strict=True)):
        return None
    return counts


def packed_shares(gpus: int, nodes: Sequence[int], free: Sequence[int]) -> list[int] | None:
    """Return all that the freest node has, then all of the next; None if they have too little, or one is superfluous."""
    counts = [0] * len(nodes)
    for place in sorted(range(len(nodes)), key=lambda place: -free[nodes[place]]):
        counts[place] = min(free[nodes[place]], gpus)
        gpus -= counts[place]
        if not counts[place]:
            return None
    return counts if not gpus else None


def _keep(cache: dict[Key, bytes], key: Key, value: bytes) -> None:
    if len(cache) >= _MOST_CACHED:
        cache.clear()
    cache[key] = value
