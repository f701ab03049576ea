"""Locality tiers: how concentrated a placement is, and how fast a job runs there.

Tiers are the k = 4 placements of SCHED2 (section III-B), from concentrated to scattered. The paper does not say which ones it
measured. Tiers are chosen by nodes, not by sockets: a job on one node counts as being at tier 0.
"""

from __future__ import annotations

import numpy as np

from policies.model import ClusterState, FloatColumn, Placement
from policies.placement.best_fit import Capacity

SAME_SOCKET, SAME_NODE, SAME_RACK, ACROSS_RACKS = range(4)
NUM_TIERS = 4


def tier(state: ClusterState, placement: Placement) -> int:
    """Return the tier of a placement."""
    if len(placement.nodes) == 1:
        return SAME_SOCKET
    racks = state.nodes.rack[list(placement.nodes)]
    return SAME_RACK if bool((racks == racks[0]).all()) else ACROSS_RACKS


def best_shape(capacity: Capacity, row: int) -> tuple[int, int]:
    """Return the (nodes, tier) that the job would have if the whole cluster were free."""
    nodes = sum(count for _, count in capacity.requests.of(row).parts)
    if nodes <= 1:
        return nodes, SAME_SOCKET
    state = capacity.state
    largest_rack = int(np.bincount(state.nodes.rack[state.nodes.available]).max())
    return nodes, SAME_RACK if nodes <= largest_rack else ACROSS_RACKS


def is_best(capacity: Capacity, row: int, placement: Placement) -> bool:
    """Return whether the job could not be placed more closely on an empty cluster."""
    nodes, best = best_shape(capacity, row)
    return len(placement.nodes) <= nodes and tier(capacity.state, placement) <= best


def relative_speed(capacity: Capacity, row: int, placement: Placement, speeds: FloatColumn) -> float:
    """Return the job's throughput at a placement as a share of that with its best locality, at most 1; `speeds` as below."""
    _, best = best_shape(capacity, row)
    return min(1.0, float(speeds[row, tier(capacity.state, placement)] / speeds[row, best]))


def speeds(state: ClusterState) -> FloatColumn:
    """Return for each job its throughput at each tier as a share of that at tier 0; 1 where nothing is known."""
    if state.profiles is None:
        return np.ones((len(state.jobs), NUM_TIERS))
    known = state.profiles.per_job(state.profiles.locality)
    return np.where(np.isnan(known), 1.0, known)
