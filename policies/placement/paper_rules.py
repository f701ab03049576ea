"""Placement rules of the papers' baselines, which take free GPUs anywhere and do not wait for a consolidated placement.

They are stated for jobs whose GPUs may be divided in any way. Jobs that may not, and those for which a rule finds too few or
too many nodes, are placed by consolidated best fit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from operator import itemgetter

from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity
from policies.placement.dividing import Shares, in_order, packed
from policies.placement.resource_shares import Loads
from policies.placement.rules import PlacementRule

Rule = Callable[[Capacity, int, int], Shares | None]
"""From free capacity, row and GPUs of a job to its shares; None when it does not fit."""

_DIGITS = 9
"""Decimal digits of costs. Costs are sums of thirds: those that differ by less count as equal, so that the lowest index decides."""


def loosely(rule: Rule) -> Callable[[Capacity, int], Placement | None]:
    """Return a placement function: that rule for jobs that it is stated for, consolidated best fit for all others."""

    def place(capacity: Capacity, row: int) -> Placement | None:
        jobs = capacity.state.jobs
        gpus = int(jobs.num_gpus[row])
        if capacity.total_free() < gpus:
            return None
        if jobs.split[row] == Split.ANY:
            shares = rule(capacity, row, gpus)
            if shares is not None and jobs.min_nodes[row] <= len(shares) <= jobs.max_nodes[row]:
                return Placement.of(shares)
        return capacity.place(row)

    return place


def _packing(capacity: Capacity, row: int, gpus: int) -> Shares | None:
    whole = capacity.place(row)
    if whole is not None and len(whole.nodes) == 1:
        return list(whole.items())  # the best fit of all nodes, found without visiting each
    return packed(capacity.rooms(row), gpus)


def _first_fit(capacity: Capacity, row: int, gpus: int) -> Shares | None:
    return in_order(sorted(capacity.rooms(row)), gpus, 0, gpus)


def _bin_packing(capacity: Capacity, loads: Loads, row: int, gpus: int) -> Shares | None:
    rooms = [(room, round(loads.of[node], _DIGITS), -node) for node, room in capacity.rooms(row)]
    shares: Shares = []
    while gpus and rooms:
        fitting = [entry for entry in rooms if entry[0] >= gpus]
        fullest = max(fitting, key=itemgetter(1, 2)) if fitting else max(rooms)
        shares.append((-fullest[2], min(fullest[0], gpus)))
        gpus -= shares[-1][1]
        rooms.remove(fullest)
    return None if gpus else shares


def bin_packing(state: ClusterState) -> PlacementRule:
    """Return MARL's rule (section VI) for one decision on that state: the most loaded node on which the whole job fits; when there
    is none, all of the node that takes most of it, and the rest by the same rule."""
    loads = Loads(state)
    place = loosely(lambda capacity, row, gpus: _bin_packing(capacity, loads, row, gpus))
    return PlacementRule("bin packing", place, loads.add)


def least_load(state: ClusterState) -> PlacementRule:
    """Return MARL's rule (section VI): each worker (one GPU, and what comes with it) goes to the node with the least load.

    The rule holds for one decision on that state.
    """
    loads = Loads(state)

    def rule(capacity: Capacity, row: int, gpus: int) -> Shares | None:
        return worker_by_worker(capacity, row, gpus, lambda node, workers: loads.with_workers(node, row, workers - 1))

    return PlacementRule("least load", loosely(rule), loads.add)


def rounded(cost: float) -> float:
    """Return the cost to the digits that decide."""
    return round(cost, _DIGITS)


def worker_by_worker(capacity: Capacity, row: int, gpus: int, cost: Callable[[int, int], float]) -> Shares | None:
    """Place each GPU on the node where it costs least, lowest index on ties; `cost(node, k)` is that of the job's k-th there."""
    rooms = dict(capacity.rooms(row))
    queue = [(rounded(cost(node, 1)), node) for node in rooms]
    heapq.heapify(queue)
    counts: dict[int, int] = {}
    while gpus and queue:
        node = queue[0][1]
        workers = counts[node] = counts.get(node, 0) + 1
        gpus -= 1
        if workers < rooms[node]:
            heapq.heapreplace(queue, (rounded(cost(node, workers + 1)), node))
        else:
            heapq.heappop(queue)
    return None if gpus else sorted(counts.items())


PACKING = PlacementRule("packing", loosely(_packing))
"""SCHED2, section II-B: the node with the fewest free GPUs on which the whole job fits; when there is none, all of the freest
node, and the rest by the same rule."""
FIRST_FIT = PlacementRule("first fit", loosely(_first_fit))
"""RL-TAPS, section 5.3: GPUs are numbered node by node, and the job takes the first that are free."""
