"""Discretized two-dimensional LAS: two queues by attained GPU-seconds, first in first out within each, preemptively.

Source: J. Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning", NSDI 2019, section 3.3. The queues keep
jobs of nearly equal service from preempting each other without end.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, number, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Tiresias:
    """Runs jobs below `threshold_gpu_s` GPU-seconds first, then the others; both in order of submission."""

    def __init__(
        self,
        threshold_gpu_s: float = 3200.0,
        round_s: float = 300.0,
        layout: str = "consolidated",
        order: str = "own",
    ) -> None:
        """A job with `threshold_gpu_s` attained GPU-seconds moves to the second queue; this is checked every `round_s` seconds.

        `order="tier"` runs jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        threshold = number("threshold_gpu_s", threshold_gpu_s, unit="GPU-seconds", positive=True)
        self.rule = Rule(Order.QUEUES, Discipline.SELECT, layout_named(layout), threshold, tier_first(order))
        self.spec = PolicySpec(
            name="tiresias",
            source="Discretized two-dimensional LAS (Tiresias, NSDI 2019)",
            preempts=True,
            round_s=number("round_s", round_s, unit="seconds"),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
