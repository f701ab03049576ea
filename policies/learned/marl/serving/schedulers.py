"""The division of a cluster among schedulers, and its GPU groups.

A GPU group of the paper is the GPUs below one CPU. With `SOCKETS` so it is here, on the nodes whose layout is known
(`ClusterState.gpu_layouts`); a node without one is a group. With a number, a node is divided into so many groups by the numbers of
its GPUs, whatever its layout, the first being the larger ones; 1: a group is a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from policies.model import ClusterState
from policies.state.gpu_layout import Link

Ints = npt.NDArray[np.int64]
RACKS, PARTITIONS, SOCKETS = "racks", "partitions", "sockets"
NO_SCHEDULER = -1


@dataclass(frozen=True, eq=False)
class Schedulers:
    """GPU groups, scheduler by scheduler. Invariant: the groups of a scheduler are consecutive, and those of a node are too."""

    first: Ints
    """First group of each scheduler, and behind them the number of groups (S + 1)."""
    group_node: Ints
    """Node of each group (G)."""
    group_gpus: Ints
    """GPUs of each group (G)."""
    group_mask: tuple[int, ...]
    """Which GPUs of its node each group has: bit k stands for GPU k (G)."""
    of_node: Ints
    """Scheduler of each node; NO_SCHEDULER for nodes without GPUs."""
    node_first: Ints
    """First group of each node, and behind it the group after its last one (N, 2); equal for nodes without GPUs."""

    @property
    def count(self) -> int:
        """Number of schedulers, S."""
        return len(self.first) - 1

    def groups_of(self, scheduler: int) -> slice:
        """Return the groups of a scheduler."""
        return slice(int(self.first[scheduler]), int(self.first[scheduler + 1]))

    def groups_on(self, node: int) -> range:
        """Return the groups of a node."""
        return range(*self.node_first[node].tolist())


def schedulers_of(state: ClusterState, division: str | int, groups: str | int) -> Schedulers:
    """Return the schedulers of a cluster: one for each rack, for each partition, or so many. `groups`: SOCKETS or a number."""
    parts = _parts(state, division)
    nodes = np.array([node for part in parts for node in part.tolist()], dtype=np.int64)
    of_each = (
        [_sockets(state, node) for node in nodes.tolist()]
        if isinstance(groups, str)
        else _numbered(state, nodes, groups)
    )
    count = np.array([*map(len, of_each)], dtype=np.int64)
    end = np.cumsum(count)
    of_node = np.full(len(state.nodes), NO_SCHEDULER)
    for scheduler, part in enumerate(parts):
        of_node[part] = scheduler
    node_first = np.zeros((len(state.nodes), 2), dtype=np.int64)
    node_first[nodes] = np.stack([end - count, end], axis=1)
    masks = tuple(chain.from_iterable(of_each))
    return Schedulers(
        first=np.append(0, end)[np.cumsum([0, *map(len, parts)])],
        group_node=np.repeat(nodes, count),
        group_gpus=np.array([*map(int.bit_count, masks)], dtype=np.int64),
        group_mask=masks,
        of_node=of_node,
        node_first=node_first,
    )


def _numbered(state: ClusterState, nodes: Ints, groups: int) -> list[tuple[int, ...]]:
    return [_equal(gpus, groups) for gpus in state.nodes.gpus[nodes].tolist()]


def _sockets(state: ClusterState, node: int) -> tuple[int, ...]:
    """Return the GPUs of each of the node's sockets, by lowest GPU; all in one group where the layout is not known."""
    layouts = state.nodes.gpu_layout
    row = -1 if layouts is None else int(layouts[node])
    return state.gpu_layouts[row].groups(Link.SOCKET) if row >= 0 else _equal(int(state.nodes.gpus[node]), 1)


@lru_cache(maxsize=256)
def _equal(gpus: int, groups: int) -> tuple[int, ...]:
    """Return so many groups of consecutive GPUs, which may be empty, as masks."""
    sizes = [gpus // groups + (place < gpus % groups) for place in range(groups)]
    found, begin = [], 0
    for size in sizes:
        found.append((1 << size) - 1 << begin)
        begin += size
    return tuple(found)


def _parts(state: ClusterState, division: str | int) -> list[Ints]:
    """Return the nodes of each scheduler, by rack and number. Nodes are in the same partition if the same of the sets of nodes that
    jobs of the state may use have them."""
    nodes = state.nodes
    order = np.lexsort((np.arange(len(nodes)), nodes.rack))
    order = order[nodes.gpus[order] > 0]
    if not len(order):
        return []
    if isinstance(division, int):
        return np.array_split(order, min(division, len(order)))
    if division == RACKS:
        kind = nodes.rack[order]
    else:
        asked = np.unique(state.jobs.node_set[state.jobs.node_set >= 0])
        kind = np.unique(state.node_sets[asked][:, order].T, axis=0, return_inverse=True)[1].reshape(-1)
    _, begin = np.unique(kind, return_index=True)
    return [order[kind == kind[first]] for first in np.sort(begin).tolist()]
