"""First in, first out: arrival order, and no job passes the head of the queue.

Source: the discipline of a plain batch queue; the baseline that Tiresias (Gu et al., NSDI 2019) and Gavel (Narayanan et
al., OSDI 2020) compare against.
"""

from __future__ import annotations

from dataclasses import replace

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import layout_named, order_named
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Order, Rule


class Fifo:
    """Starts jobs in order of submission; no job starts before an earlier one that does not fit."""

    spec = PolicySpec(name="fifo", source="First in, first out (baseline of Gavel, OSDI 2020)", considers=1)

    def __init__(self, layout: str = "consolidated", order: str = "submission") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="slurm"` takes them by tier of their partition and Slurm's priority, where the cluster has these.
        """
        self.rule = Rule(order_named(order), Discipline.STRICT, layout_named(layout))
        if self.rule.order != Order.ARRIVAL:  # the head of another order may be anywhere in the order of submission
            self.spec = replace(type(self).spec, considers=0)

    def decide(self, state: ClusterState) -> Decision:
        """Start the longest prefix of the queue that fits."""
        return apply_rule(self.rule, state)
