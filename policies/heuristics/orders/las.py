"""Least attained service: all active jobs by their attained GPU-seconds, preemptively.

Source: two-dimensional LAS of Tiresias (Gu et al., NSDI 2019, section 3.2), after Nuyens and Wierman, "The
foreground-background queue: a survey", Performance Evaluation 65, 2008. It needs no durations.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, number
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Las:
    """Runs the jobs with the fewest attained GPU-seconds; decides again every `round_s` seconds."""

    def __init__(self, round_s: float = 300.0, layout: str = "consolidated") -> None:
        """Rounds of `round_s` seconds, so that jobs with equal service take turns; 0 = only at events."""
        self.rule = Rule(Order.ATTAINED, Discipline.SELECT, layout_named(layout))
        self.spec = PolicySpec(
            name="las",
            source="Two-dimensional least attained service (Tiresias, NSDI 2019)",
            preempts=True,
            round_s=number("round_s", round_s, unit="seconds"),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are stopped."""
        return apply_rule(self.rule, state)
