"""Candidate placements of one job: a handful that differ in what they share with other jobs.

In this order: consolidated best fit; then, over all nodes and over the freest racks, the freest nodes, the nodes whose NICs carry
the fewest jobs, and the freest with the rest on its best fit. A job that one node can take is offered other single nodes.
All keep to what the job allows; how its GPUs divide, see `Split`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from policies.model import Placement, Split
from policies.placement.best_fit import Capacity
from policies.placement.dividing import Room, evenly, in_order

Crowd = Callable[[int], int]
"""From a node to the number of jobs that send over its NIC."""

MOST_NODES = 32
"""Number of nodes that are considered besides as many as the job needs: the freest."""
_MOST_RACKS = 2
_MOST_SINGLE = 8


def candidates(capacity: Capacity, row: int, crowd: Crowd) -> Iterator[Placement]:
    """Yield placements of that job on free GPUs, each once; none where it does not fit."""
    if capacity.total_free() < capacity.requests.of(row).gpus:
        return
    seen: set[Placement] = set()
    for placement in _all(capacity, row, crowd):
        if placement not in seen:
            seen.add(placement)
            yield placement


def _all(capacity: Capacity, row: int, crowd: Crowd) -> Iterator[Placement]:
    first = capacity.place(row)
    if first is not None:
        yield first
    request = capacity.requests.of(row)
    gpus, low, high = request.gpus, request.min_nodes, request.max_nodes
    rooms = list(islice(capacity.rooms(row), MOST_NODES + min(gpus, high)))
    if first is not None and len(first.nodes) == 1:
        fitting = sorted((room, node) for node, room in rooms if room >= gpus)
        yield from (Placement((node,), (gpus,)) for _, node in fitting[:_MOST_SINGLE])
        return
    crowds = {node: crowd(node) for node, _ in rooms}
    for among in (rooms, *_by_rack(capacity, rooms, gpus)):
        quiet = sorted(among, key=lambda room: crowds[room[0]])  # ties keep their order: the freest first
        if request.split is Split.ANY:
            for order, tight in ((among, False), (quiet, False), (among, True)):
                shares = in_order(order, gpus, low, high, tight=tight)
                if shares is not None:
                    yield Placement.of(shares)
        else:
            most = low if request.split is Split.FIXED else min(high, gpus, len(among))
            counts = [n for n in range(low, most + 1) if gpus % n == 0]
            for order in (among, quiet):
                yield from map(Placement.of, evenly(order, gpus, counts))


def _by_rack(capacity: Capacity, rooms: list[Room], gpus: int) -> Iterable[list[Room]]:
    """Return the rooms of each rack that has enough for the job; the racks with most first."""
    rack = capacity.racks
    racks: dict[int, list[Room]] = defaultdict(list)
    for room in rooms:
        racks[rack[room[0]]].append(room)
    if len(racks) < 2:
        return []
    total = {number: sum(room for _, room in its) for number, its in racks.items()}
    enough = sorted((number for number in racks if total[number] >= gpus), key=lambda number: (-total[number], number))
    return [racks[number] for number in enough[:_MOST_RACKS]]
