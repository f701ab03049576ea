"""The GPU groups that jobs occupy on a node.

Where a run follows which GPUs jobs have (see `simulator.engine.gpu_tracker`), `groups` goes by these. Otherwise the engine counts
the GPUs of a node that a job occupies and does not number them, and models of the inside of nodes assume that the jobs on a node,
in order of submission, each take the group with the fewest free GPUs among those with enough, the lowest on ties; a job that fits
in no group takes from the groups with the most free GPUs. So groups depend on the jobs present, not on the order of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident


def gpus_on(resident: Resident, node: int) -> int:
    """Return the GPUs that a job occupies on a node."""
    return resident.counts[resident.nodes.index(node)]


def groups(topology: Topology, node: int, residents: Sequence[Resident]) -> tuple[tuple[int, ...], ...]:
    """Return how many GPUs of each group each of a node's jobs occupies; `residents` are in order of their rows."""
    sizes = topology.group_sizes(node)
    masks = [resident.gpu_masks.get(node, 0) for resident in residents]
    if all(masks):
        size = topology.group_size(node)
        whole = (1 << size) - 1
        return tuple(tuple((mask >> size * group & whole).bit_count() for group in range(len(sizes))) for mask in masks)
    return groups_of(sizes, tuple([gpus_on(resident, node) for resident in residents]))


@lru_cache(maxsize=65536)
def groups_of(sizes: tuple[int, ...], counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the same from the sizes of the groups, and the number of GPUs that each job occupies on the node."""
    free = list(sizes)
    return tuple(_take(free, count) for count in counts)


def _take(free: list[int], count: int) -> tuple[int, ...]:
    taken = [0] * len(free)
    while count:
        fitting = [group for group, room in enumerate(free) if room >= count]
        group = min(fitting, key=free.__getitem__) if fitting else max(range(len(free)), key=free.__getitem__)
        share = min(free[group], count)
        if not share:
            raise ValueError("a node's jobs occupy more GPUs than it has")
        free[group] -= share
        taken[group] += share
        count -= share
    return tuple(taken)
