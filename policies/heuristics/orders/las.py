"""Least attained service: all active jobs by their attained GPU-seconds, preemptively.

Source: two-dimensional LAS of Tiresias (Gu et al., NSDI 2019, section 3.2), after Nuyens and Wierman, "The
foreground-background queue: a survey", Performance Evaluation 65, 2008. It needs no durations.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, number, tier_first
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Las:
    """Runs the jobs with the fewest attained GPU-seconds; decides again every `round_s` seconds."""

    def __init__(
        self,
        round_s: float = 300.0,
        layout: str = "consolidated",
        first_level_gpu_s: float | None = None,
        order: str = "own",
    ) -> None:
        """Rounds of `round_s` seconds, so that jobs with equal service take turns; 0 = only at events.

        With `first_level_gpu_s` only the level of the attained service counts: below so many GPU-seconds, below twice as many,
        and so on; within a level, jobs run by submission. Jobs of nearly equal service then do not stop each other again and
        again, as they do without when many wait (a multilevel feedback queue; Tiresias has two levels).

        `order="tier"` runs jobs of a higher tier of Slurm's partitions first, and orders them so within a tier.
        """
        kind, first = Order.ATTAINED, 0.0
        if first_level_gpu_s is not None:
            kind, first = (
                Order.LEVELS,
                number("first_level_gpu_s", first_level_gpu_s, unit="GPU-seconds", positive=True),
            )
        self.rule = Rule(kind, Discipline.SELECT, layout_named(layout), first, tier_first(order))
        self.spec = PolicySpec(
            name="las",
            source="Two-dimensional least attained service (Tiresias, NSDI 2019)",
            preempts=True,
            round_s=number("round_s", round_s, unit="seconds"),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
