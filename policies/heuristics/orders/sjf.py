"""Shortest job first: waiting jobs by estimated duration; running jobs are never stopped.

Source: W. E. Smith, "Various optimizers for single-stage production", Naval Research Logistics Quarterly 3, 1956; the
baseline of the same name in Tiresias (Gu et al., NSDI 2019).
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Sjf:
    """Starts jobs with the shortest estimated duration first; jobs without an estimate come last."""

    spec = PolicySpec(
        name="sjf",
        source="Shortest job first (Smith 1956)",
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(self, layout: str = "consolidated", order: str = "own") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="tier"` takes jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        self.rule = Rule(Order.DURATION, Discipline.SKIP, layout_named(layout), by_tier=tier_first(order))

    def decide(self, state: ClusterState) -> Decision:
        """Start, shortest first, every waiting job that fits when its turn comes."""
        return apply_rule(self.rule, state)
