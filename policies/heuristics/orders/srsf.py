"""Shortest remaining service first: all active jobs by remaining duration times GPUs, preemptively.

Source: the baseline of that name in Tiresias (Gu et al., NSDI 2019, section 2.2), which knows durations.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Srsf:
    """Runs the jobs with the smallest remaining duration times GPUs; jobs without an estimate come last."""

    spec = PolicySpec(
        name="srsf",
        source="Shortest remaining service first (Tiresias, NSDI 2019)",
        preempts=True,
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(self, layout: str = "consolidated", order: str = "own") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="tier"` runs jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        self.rule = Rule(Order.REMAINING_GPUS, Discipline.SELECT, layout_named(layout), by_tier=tier_first(order))

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
