"""Which GPU groups jobs hold on a node.

The engine says how many GPUs of a node a job holds, not which. Models that look inside nodes take it that the jobs there, by row
(those that came first first), each take the group with the fewest free GPUs among those with enough, the lowest on ties; one that
no group has room for takes from the freest groups. So groups follow from who is there, not from the order of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident


def held_on(resident: Resident, node: int) -> int:
    """GPUs that a job holds on a node."""
    return resident.counts[resident.nodes.index(node)]


def groups(topology: Topology, node: int, residents: Sequence[Resident]) -> tuple[tuple[int, ...], ...]:
    """GPUs that each of a node's jobs, given by row, holds of each group."""
    return groups_of(topology.group_sizes(node), tuple([held_on(resident, node) for resident in residents]))


@lru_cache(maxsize=65536)
def groups_of(sizes: tuple[int, ...], counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The same, from the sizes of the groups and what each of the jobs holds of the node."""
    free = list(sizes)
    return tuple(_take(free, count) for count in counts)


def _take(free: list[int], count: int) -> tuple[int, ...]:
    taken = [0] * len(free)
    while count:
        fitting = [group for group, room in enumerate(free) if room >= count]
        group = min(fitting, key=free.__getitem__) if fitting else max(range(len(free)), key=free.__getitem__)
        share = min(free[group], count)
        if not share:
            raise ValueError("a node's jobs hold more GPUs than it has")
        free[group] -= share
        taken[group] += share
        count -= share
    return tuple(taken)
