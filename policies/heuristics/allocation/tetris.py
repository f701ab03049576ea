"""Tetris: jobs that use the free resources well come first, and so do jobs that end soon.

Source: Grandl et al., "Multi-resource Packing for Cluster Schedulers", SIGCOMM 2014, sections 3.2 and 3.3: the alignment of a
task is the dot product of its demand and what is free, both as shares of the whole; its score is alignment - epsilon x
remaining time, where epsilon is the ratio of their means. Baseline of DL2 (Peng et al., TPDS 2021, section 6.2: "shortest
remaining completion time and highest resource packing efficiency") and of RL-TAPS (`policies.heuristics.baselines.rl_taps`).

The paper matches tasks with machines. A gang has no single machine: here it is matched with the free resources of the cluster as a
whole: GPUs, CPUs and memory. Gangs have the size that they asked for. Jobs without an estimate come last where remaining
time counts. Running jobs are not stopped.

With `elastic` the job with the best score gets tasks "until the number of tasks reaches a user-defined threshold" (DL2, section
6.3), then the next job does. A task is one GPU with its CPUs and memory, and alignment is that of a task. DL2 divides the
cluster anew in every slot; here sizes are decided anew at every event and round, a job keeps its own for a round at least, and
jobs may be stopped for others with a better score. No job gets less than its minimum, or more than its maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, FloatColumn, IntColumn
from policies.options import layout_named, number, switch, whole
from policies.ordering.greedy import Greedy
from policies.ordering.resizing import Resizer, ranges
from policies.placement.best_fit import Capacity
from policies.placement.resource_shares import cluster_totals, demands, occupied_gpus
from policies.placement.rules import PlacementRule, placement_rule


class Tetris:
    """Starts jobs by alignment with the free resources minus remaining time, the highest score first."""

    spec = PolicySpec(
        name="tetris",
        source="Tetris (Grandl et al., SIGCOMM 2014; baseline of DL2)",
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(
        self,
        time_weight: float = 1.0,
        layout: str = "consolidated",
        elastic: bool = False,
        threshold: int = 8,
        round_s: float = 1200.0,
    ) -> None:
        """`time_weight` is epsilon in units of mean alignment over mean remaining time; 0 = alignment only.

        With `elastic` a job that takes a range of sizes grows to `threshold` GPUs, in rounds (20 minutes: DL2's slot).
        """
        self._time_weight = number("time_weight", time_weight, unit="mean ratios")
        self._placing = placement_rule(layout_named(layout))
        self._elastic = switch("elastic", elastic)
        self._threshold = whole("threshold", threshold, least=1)
        seconds = number("round_s", round_s, unit="seconds")
        self._resizer = Resizer(self._placing, seconds, "it uses the free resources best and ends soonest")
        if self._elastic:
            self.spec = replace(self.spec, preempts=True, resizes=True, round_s=seconds)

    def decide(self, state: ClusterState) -> Decision:
        """Start the best that fits, and so on; each start changes what the others align with."""
        return self._grow(state) if self._elastic else start_by_alignment(state, self._placing, self._time_weight)

    def _grow(self, state: ClusterState) -> Decision:
        """Give tasks to the best job up to the threshold, then to the next; then place the jobs."""
        least, high = ranges(state)
        most = np.maximum(least, np.minimum(high, self._threshold))
        tasks = demands(state) / state.jobs.num_gpus[:, None]
        own, foreign = occupied_gpus(state)[:, None] * tasks, _foreign(state)

        def shares(order: Sequence[int], gpus: int) -> dict[int, int]:
            rows = np.array(order, dtype=np.int64)
            free = 1.0 - foreign - own[np.setdiff1d(state.running, rows)].sum(axis=0)
            sizes: dict[int, int] = {}
            while len(rows := rows[least[rows] <= gpus]):
                best = int(_scores(tasks[rows], state.remaining_s[rows], free, self._time_weight).argmin())
                row = int(rows[best])
                sizes[row] = min(int(most[row]), gpus)
                gpus -= sizes[row]
                free = free - sizes[row] * tasks[row]
                rows = np.delete(rows, best)
            return sizes

        return self._resizer.decide(state, shares)


def start_by_alignment(state: ClusterState, placing: PlacementRule, time_weight: float, window: int = 0) -> Decision:
    """Start waiting jobs by Tetris' score."""
    demand, remaining = demands(state), state.remaining_s
    free = 1.0 - _foreign(state) - demand[state.running].sum(axis=0)

    def score(_: Capacity, rows: IntColumn) -> FloatColumn:
        return _scores(demand[rows], remaining[rows], free, time_weight)

    def started(row: int) -> None:
        np.subtract(free, demand[row], out=free)

    return Greedy(placing, window, started=started).decide(state, score)


def _scores(demand: FloatColumn, remaining_s: FloatColumn, free: FloatColumn, time_weight: float) -> FloatColumn:
    """Return the scores of jobs with these demands and remaining times; the least comes first."""
    alignment: FloatColumn = demand @ np.maximum(free, 0.0)
    scores: FloatColumn = -alignment / (alignment.mean() or 1.0)
    if time_weight > 0:
        known = remaining_s[np.isfinite(remaining_s)]
        scale = float(known.mean()) if len(known) else 0.0
        scores = scores + time_weight * remaining_s / (scale or 1.0)
    return scores.round(12)


def _foreign(state: ClusterState) -> FloatColumn:
    """Return the shares of the cluster's GPUs, CPUs and memory that foreign jobs use."""
    nodes = state.nodes
    totals = cluster_totals(state)
    used = np.stack((nodes.foreign_gpus, nodes.foreign_cpus, nodes.foreign_memory_mib), axis=1)[nodes.available]
    shares: FloatColumn = np.divide(used.sum(axis=0), totals, out=np.zeros_like(totals), where=totals > 0)
    return shares
