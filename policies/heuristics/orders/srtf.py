"""Shortest remaining time first: all active jobs by estimated remaining duration, preemptively.

Source: L. Schrage, "A proof of the optimality of the shortest remaining processing time discipline", Operations Research
16(3), 1968; for gangs of GPUs as in Tiresias (Gu et al., NSDI 2019).
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Srtf:
    """Runs the jobs with the shortest remaining duration; jobs without an estimate come last."""

    spec = PolicySpec(
        name="srtf",
        source="Shortest remaining processing time (Schrage 1968)",
        preempts=True,
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(self, layout: str = "consolidated", order: str = "own") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="tier"` runs jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        self.rule = Rule(Order.REMAINING, Discipline.SELECT, layout_named(layout), by_tier=tier_first(order))

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
