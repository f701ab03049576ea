"""Least attained service by number of GPUs only: placement never keeps a job from being selected.

Source: two-dimensional LAS of Tiresias (Gu et al., NSDI 2019, section 3.2) as simulators have it that count GPUs and do not
consider nodes. Jobs are consolidated where possible, and take the freest nodes otherwise.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import number, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Layout, Order, Rule


class LasCount:
    """Runs the jobs with the fewest attained GPU-seconds, chosen by the number of GPUs alone; decides every `round_s` seconds."""

    def __init__(self, round_s: float = 300.0, order: str = "own") -> None:
        """Rounds of `round_s` seconds, so that jobs with equal service take turns; 0 = only at events.

        `order="tier"` runs jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        self.rule = Rule(Order.ATTAINED, Discipline.SELECT, Layout.ANYWHERE, by_tier=tier_first(order))
        self.spec = PolicySpec(
            name="las-count",
            source="Two-dimensional least attained service (Tiresias, NSDI 2019), GPUs counted",
            preempts=True,
            round_s=number("round_s", round_s, unit="seconds"),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
