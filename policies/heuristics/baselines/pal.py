"""PAL and PM-First: the jobs that suffer most from slow GPUs get the fastest nodes; PAL weighs this against locality.

Source: Jain et al., "PAL: A variability-aware policy for scheduling ML workloads in GPU clusters", SC 2024, and its published
simulator (hal-uw/blox-pal, placement/pal.py and pmfirst.py):

- GPUs of one model differ in speed, and classes of jobs differ in how much they feel it. GPUs of nearly equal speed are binned;
- a scheduler (FIFO, LAS or SRTF) orders the jobs. Those at its front that fill the cluster are placed, the most sensitive first;
- **PM-First** takes the fastest free GPUs, and of equally fast ones those of the node whose number fits best;
- **PAL** lists all pairs of a bin's slowness and "on one node" (x 1) or "on several" (x a locality penalty), in the order of their
  product. The job takes the first pair that has enough GPUs of that bin or faster ones. Jobs of one GPU, or of more than a node
  has, are placed by PM-First.

Choices, and where it differs:
- speeds are those of nodes, not of single GPUs (`Nodes.gpu_speed`), and a model's sensitivity is a share
  (`ProfileTable.speed_sensitivity`), not one of four classes. Jobs whose sensitivity is not known feel all of it, as in PAL;
- slowness = 1 + sensitivity x (fastest speed / speed - 1). A bin begins where slowness exceeds that of its first node by more than
  2 %, in place of k-means, and counts with its slowest node;
- the jobs that fill the cluster are selected as by `srtf` with any placement: one that does not fit is skipped;
- running jobs stay where they are: PAL places all jobs anew in each round and counts no cost for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, FloatColumn, Placement
from policies.options import choice, number
from policies.ordering.run_rule import order_keys
from policies.ordering.select_by_total import select_by_total
from policies.placement.best_fit import Capacity, Fit
from policies.placement.dividing import Room, Shares, in_order
from policies.placement.paper_rules import loosely
from policies.placement.rules import PlacementRule
from policies.rule import Discipline, Order, Rule
from policies.selection import active, by
from policies.speeds.distance import far_speeds

ORDERS = {
    "fifo": Order.ARRIVAL,
    "las": Order.ATTAINED,
    "srtf": Order.REMAINING,
    "srsf": Order.REMAINING_GPUS,
}
RULES = ("pal", "pm-first")
PENALTY = 1.7
"""The penalty for several nodes in PAL's published simulator."""
_BIN = 1.02
"""Largest ratio of slowness within a bin."""


class Pal:
    """Runs jobs in the order of a scheduler, the most sensitive to slow GPUs on the fastest nodes; weighs that against locality."""

    def __init__(
        self, order: str = "fifo", rule: str = "pal", penalty: float = PENALTY, round_s: float = 300.0
    ) -> None:
        """Jobs by `order` (fifo, las, srtf or srsf) are placed by `rule` (pal or pm-first). On several nodes a job counts as
        `penalty` times as slow; 0: as its profile says. With `las` it decides again every `round_s` seconds."""
        kind = ORDERS[choice("order", order, tuple(ORDERS))]
        self._rule = Rule(kind, Discipline.SELECT)
        self._local = choice("rule", rule, RULES) == "pal"
        self._penalty = number("penalty", penalty, unit="times as slow")
        if 0 < self._penalty < 1:
            raise ValueError(f"penalty is {penalty}; give 1 or more, or 0 for what each job's profile says")
        seconds = number("round_s", round_s, unit="seconds")
        self.spec = PolicySpec(
            name="pal",
            source="PAL and PM-First (Jain et al., SC 2024)",
            preempts=True,
            round_s=seconds if kind == Order.ATTAINED else 0.0,
            needs=frozenset({"duration_estimate"} if order in {"srtf", "srsf"} else ()),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order by GPUs; place the newcomers, the most sensitive first."""
        sensitivity = _sensitivity(state)
        far = None if self._penalty else far_speeds(Capacity(state))
        bins = _Bins(state)
        gpus_of_node = int(state.nodes.gpus.max()) if len(state.nodes) else 0

        def shares(capacity: Capacity, row: int, gpus: int) -> Shares | None:
            slowness = bins.slowness(float(sensitivity[row]))
            rooms = list(capacity.rooms(row))
            if not self._local or not 1 < gpus <= gpus_of_node:
                return pm_first(rooms, gpus, slowness)
            penalty = self._penalty if far is None else 1.0 / float(far[row])
            return by_product(rooms, gpus, slowness, penalty)

        placing = PlacementRule("fast nodes", loosely(shares))

        def claim(base: Capacity, _: Mapping[int, Placement], newcomers: list[int]) -> dict[int, Fit]:
            return placing.claim(base, sorted(newcomers, key=lambda row: -sensitivity[row]))  # ties keep the order

        def explain(state: ClusterState, fit: Fit) -> str:
            return placing.explain(state, fit)

        return select_by_total(state, by(order_keys(self._rule, state), active(state)), claim, explain)


def pm_first(rooms: list[Room], gpus: int, slowness: list[float]) -> Shares | None:
    """Return the GPUs of the fastest bins, and in a bin first those of nodes with about as many as are needed."""
    best = sorted(rooms, key=lambda room: (slowness[room[0]], abs(room[1] - gpus), room[0]))
    return in_order(best, gpus, 0, gpus)


def by_product(rooms: list[Room], gpus: int, slowness: list[float], penalty: float) -> Shares | None:
    """Return the GPUs of the least product of slowness and locality penalty; on one node the fastest, then the fullest."""
    values = sorted({slowness[node] for node, _ in rooms})
    pairs = sorted([(value, False, value) for value in values] + [(value * penalty, True, value) for value in values])
    for _, spread, value in pairs:
        among = [(node, room) for node, room in rooms if slowness[node] <= value]
        if spread:
            if sum(room for _, room in among) >= gpus:
                return pm_first(among, gpus, slowness)
        elif holding := [(slowness[node], room, node) for node, room in among if room >= gpus]:
            return [(min(holding)[2], gpus)]
    return None


@dataclass
class _Bins:
    """Slowness of nodes, in bins; one list for each sensitivity. Bound: lives for one decision."""

    state: ClusterState
    _known: dict[float, list[float]] = field(default_factory=dict, init=False)

    def slowness(self, sensitivity: float) -> list[float]:
        """Return for each node how many times as slow as on the fastest node a job of that sensitivity is, as its bin counts."""
        found = self._known.get(sensitivity)
        if found is None:
            found = self._known[sensitivity] = _binned(1.0 + sensitivity * (_relative_times(self.state) - 1.0))
        return found


def _relative_times(state: ClusterState) -> FloatColumn:
    """Return the time of a step on each node, relative to the fastest; 1 where no speed is known."""
    speeds = state.nodes.gpu_speed
    if speeds is None:
        return np.ones(len(state.nodes))
    known = speeds[~np.isnan(speeds)]
    fastest = float(known.max()) if len(known) else 1.0
    return np.where(np.isnan(speeds), 1.0, fastest / speeds)


def _binned(slowness: FloatColumn) -> list[float]:
    """Return for each entry the largest of its bin."""
    values: list[float] = np.unique(slowness).tolist()
    largest: dict[float, float] = {}
    first = 0
    for place, value in enumerate(values):
        if value > values[first] * _BIN:
            first = place
        largest[values[first]] = value
    begins = np.array(sorted(largest))
    bins = np.searchsorted(begins, slowness, side="right") - 1
    return [largest[float(begins[place])] for place in bins.tolist()]


def _sensitivity(state: ClusterState) -> FloatColumn:
    """Return the share of a node's slowness that each job feels; 1 where it is not known."""
    profiles = state.profiles
    if profiles is None or profiles.speed_sensitivity is None:
        return np.ones(len(state.jobs))
    known = profiles.per_job(profiles.speed_sensitivity)
    return np.where(np.isnan(known), 1.0, known)
