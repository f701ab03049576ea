"""Shortest remaining time first by number of GPUs only: placement never keeps a job from being selected.

Source: SRTF as simulators of Tiresias (Gu et al., NSDI 2019) and Gavel (Narayanan et al., OSDI 2020) have it, which count
GPUs and do not consider nodes. Jobs are consolidated where possible, and take the freest nodes otherwise.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Layout, Order, Rule


class SrtfCount:
    """Runs the jobs with the shortest remaining duration, chosen by the number of GPUs alone; without an estimate, last."""

    spec = PolicySpec(
        name="srtf-count",
        source="Shortest remaining processing time (Schrage 1968), GPUs counted",
        preempts=True,
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(self, order: str = "own") -> None:
        """`order="tier"` runs jobs of a higher tier of Slurm's partitions first, and orders them so within a tier."""
        self.rule = Rule(Order.REMAINING, Discipline.SELECT, Layout.ANYWHERE, by_tier=tier_first(order))

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
