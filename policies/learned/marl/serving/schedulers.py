"""The division of a cluster among schedulers, and its GPU groups.

A GPU group of the paper is the GPUs below one CPU. Here a group is a node, as most states have no layout of GPUs (`gpu_layouts`),
and layouts are not used; with `groups` of 2 or more, a node is divided into so many groups by the numbers of its GPUs, the first
being the larger ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.model import ClusterState

Ints = npt.NDArray[np.int64]
RACKS, PARTITIONS = "racks", "partitions"
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
    group_first_gpu: Ints
    """Number of the first GPU of each group in its node (G)."""
    of_node: Ints
    """Scheduler of each node; NO_SCHEDULER for nodes without GPUs."""
    node_group: Ints
    """First group of each node, 0 for nodes without GPUs."""
    each: int
    """Groups of a node."""

    @property
    def count(self) -> int:
        """Number of schedulers, S."""
        return len(self.first) - 1

    def groups_of(self, scheduler: int) -> slice:
        """Return the groups of a scheduler."""
        return slice(int(self.first[scheduler]), int(self.first[scheduler + 1]))

    def groups_on(self, node: int) -> range:
        """Return the groups of a node."""
        begin = int(self.node_group[node])
        return range(begin, begin + self.each)


def schedulers_of(state: ClusterState, division: str | int, groups: int) -> Schedulers:
    """Return the schedulers of a cluster: one for each rack, for each partition, or so many."""
    parts = _parts(state, division)
    nodes = np.array([node for part in parts for node in part], dtype=np.int64)
    all_gpus = state.nodes.gpus[nodes]
    place = np.tile(np.arange(groups), len(nodes))
    gpus = np.repeat(all_gpus // groups, groups) + (place < np.repeat(all_gpus % groups, groups))
    of_node = np.full(len(state.nodes), NO_SCHEDULER)
    node_group = np.zeros(len(state.nodes), dtype=np.int64)
    node_group[nodes] = np.arange(len(nodes)) * groups
    for scheduler, part in enumerate(parts):
        of_node[part] = scheduler
    before = np.cumsum(gpus) - gpus
    return Schedulers(
        first=np.cumsum([0, *(len(part) * groups for part in parts)]),
        group_node=np.repeat(nodes, groups),
        group_gpus=gpus,
        group_first_gpu=before - np.repeat(before[::groups], groups),
        of_node=of_node,
        node_group=node_group,
        each=groups,
    )


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
