"""Levels of consolidation: one node, one rack, or anywhere on the network. Dally's delay timers hold for them."""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum

from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity
from policies.placement.dividing import Room, Shares, evenly, in_order
from policies.placement.locality_tiers import SAME_RACK, SAME_SOCKET, best_shape, tier
from policies.placement.rules import freest


class Level(IntEnum):
    """The part of the cluster in which all GPUs of a job are."""

    MACHINE = 0
    RACK = 1
    NETWORK = 2


_OF_TIER = {SAME_SOCKET: Level.MACHINE, SAME_RACK: Level.RACK}


def level_of(state: ClusterState, placement: Placement) -> Level:
    """Return the smallest part of the cluster that has all nodes of a placement."""
    return _OF_TIER.get(tier(state, placement), Level.NETWORK)


def nearest_level(capacity: Capacity, row: int) -> Level:
    """Return the level that the job would have if the whole cluster were free."""
    return _OF_TIER.get(best_shape(capacity, row)[1], Level.NETWORK)


def place_within(capacity: Capacity, row: int, level: Level) -> Placement | None:
    """Return where the job would go within that part of the cluster; None where it does not fit. Takes nothing.

    On one node: its best fit. In one rack: the rack with the fewest free GPUs that holds it, the freest nodes there. Anywhere:
    consolidated best fit, else the freest nodes.
    """
    if level == Level.RACK:
        return _in_one_rack(capacity, row)
    placement = capacity.place(row)
    if level == Level.MACHINE:
        return placement if placement is not None and len(placement.nodes) == 1 else None
    return freest(capacity, row) if placement is None else placement


def _in_one_rack(capacity: Capacity, row: int) -> Placement | None:
    request = capacity.requests.of(row)
    if capacity.total_free() < request.gpus:
        return None
    racks: dict[int, list[Room]] = defaultdict(list)
    for room in capacity.rooms(row):
        racks[capacity.racks[room[0]]].append(room)
    total = {rack: sum(room for _, room in rooms) for rack, rooms in racks.items()}
    for rack in sorted((rack for rack in racks if total[rack] >= request.gpus), key=lambda rack: (total[rack], rack)):
        shares = _shares(capacity, row, racks[rack])
        if shares is not None:
            return Placement.of(shares)
    return None


def _shares(capacity: Capacity, row: int, rooms: list[Room]) -> Shares | None:
    request = capacity.requests.of(row)
    gpus, low, high = request.gpus, request.min_nodes, request.max_nodes
    if request.split is Split.ANY:
        return in_order(rooms, gpus, low, high, tight=True)
    most = low if request.split is Split.FIXED else min(high, gpus, len(rooms))
    return next(evenly(rooms, gpus, [count for count in range(low, most + 1) if gpus % count == 0]), None)
