"""Fewest GPUs first: waiting jobs by number of GPUs, then arrival; running jobs are never stopped.

Source: "smallest job first" of Feitelson et al., "Theory and practice in parallel job scheduling", JSSPP 1997.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class FewestGpus:
    """Starts jobs with the fewest GPUs first; of equal jobs, the one that was submitted first."""

    spec = PolicySpec(name="fewest-gpus", source="Smallest job first (Feitelson et al. 1997)")

    def __init__(self, layout: str = "consolidated", order: str = "own") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="tier"` takes jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        self.rule = Rule(Order.GPUS, Discipline.SKIP, layout_named(layout), by_tier=tier_first(order))

    def decide(self, state: ClusterState) -> Decision:
        """Start, smallest first, every waiting job that fits when its turn comes."""
        return apply_rule(self.rule, state)
