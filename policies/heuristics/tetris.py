"""Tetris: jobs that fill well what is free come first, and so do those that are soon done.

Source: Grandl et al., "Multi-resource Packing for Cluster Schedulers", SIGCOMM 2014, sections 3.2 and 3.3: the alignment of a
task is the dot product of its demand and what is free, both as shares of the whole; its score is alignment - epsilon x
remaining time, where epsilon is the ratio of their means. Baseline of DL2 (Peng et al., TPDS 2021, section 6.2: "shortest
remaining completion time and highest resource packing efficiency") and of RL-TAPS (`policies.heuristics.rl_taps`).

The paper matches tasks with machines. A gang has no single machine: here it is matched with what the cluster has free as a
whole, of GPUs, CPUs and memory. DL2 lets the chosen job grow up to a threshold; gangs have the size that they asked for.
Jobs without an estimate come last where remaining time counts. Running jobs are not stopped.
"""

from __future__ import annotations

import numpy as np

from policies.api import Decision, PolicySpec
from policies.greedy import Greedy
from policies.model import ClusterState, FloatColumn, IntColumn
from policies.options import layout_named, number
from policies.packing import Capacity
from policies.placing import Placing, placing_of
from policies.resources import cluster_totals, demands


class Tetris:
    """Waiting jobs by alignment with what is free, minus remaining time: best first."""

    spec = PolicySpec(
        name="tetris",
        source="Tetris (Grandl et al., SIGCOMM 2014; baseline of DL2)",
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(self, time_weight: float = 1.0, layout: str = "consolidated") -> None:
        """`time_weight` is epsilon in units of mean alignment over mean remaining time; 0 = packing only."""
        self._time_weight = number("time_weight", time_weight, unit="mean ratios")
        self._placing = placing_of(layout_named(layout))

    def decide(self, state: ClusterState) -> Decision:
        """Start the best that fits, and so on; each start changes what the others align with."""
        return pack(state, self._placing, self._time_weight)


def pack(state: ClusterState, placing: Placing, time_weight: float, window: int = 0) -> Decision:
    """Start waiting jobs by Tetris' score."""
    demand, remaining = demands(state), state.remaining_s
    free = 1.0 - _foreign(state) - demand[state.running].sum(axis=0)

    def score(_: Capacity, rows: IntColumn) -> FloatColumn:
        alignment: FloatColumn = demand[rows] @ np.maximum(free, 0.0)
        scores: FloatColumn = -alignment / (alignment.mean() or 1.0)
        if time_weight > 0:
            known = remaining[rows][np.isfinite(remaining[rows])]
            scale = float(known.mean()) if len(known) else 0.0
            scores = scores + time_weight * remaining[rows] / (scale or 1.0)
        return scores.round(12)

    def started(row: int) -> None:
        np.subtract(free, demand[row], out=free)

    return Greedy(placing, window, started=started).decide(state, score)


def _foreign(state: ClusterState) -> FloatColumn:
    """Shares of the cluster's GPUs, CPUs and memory that jobs of others use."""
    nodes = state.nodes
    totals = cluster_totals(state)
    used = np.stack((nodes.foreign_gpus, nodes.foreign_cpus, nodes.foreign_memory_mib), axis=1)[nodes.available]
    shares: FloatColumn = np.divide(used.sum(axis=0), totals, out=np.zeros_like(totals), where=totals > 0)
    return shares
