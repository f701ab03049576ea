"""EASY backfilling: arrival order, and later jobs may pass the head of the queue as long as that does not delay it.

Source: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995, as Mu'alem and Feitelson state it in IEEE TPDS 12(6), 2001.
The reservation of the head is a time, not nodes, and is made anew at every decision. It is as reliable as the estimates.
"""

from __future__ import annotations

from dataclasses import replace

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import choice, layout_named, order_named
from policies.ordering.naming_gpus import GPUS, with_gpus_named
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Rule, rule_text


class Backfill:
    """Starts jobs in order of submission; later jobs may start before the first that does not fit if they do not delay it."""

    spec = PolicySpec(
        name="backfill",
        source="EASY backfilling (Lifka 1995)",
        needs=frozenset({"duration_estimate"}),
    )

    def __init__(self, layout: str = "consolidated", order: str = "submission", gpus: str = "any") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="slurm"` takes them by tier of their partition and Slurm's priority, where the cluster has these.
        `gpus="packed"` also names the GPUs of a node: those with the closest links.
        """
        self._rule = Rule(order_named(order), Discipline.BACKFILL, layout_named(layout))
        if choice("gpus", gpus, GPUS) == "any":
            self.rule = self._rule
        else:  # without a `rule` a simulator asks `decide`, because the rule alone names no GPUs
            self.spec = replace(type(self).spec, exact_gpus=True, ordered_by=rule_text(self._rule))

    def decide(self, state: ClusterState) -> Decision:
        """Start the head of the queue while it fits, then every job that fits and does not delay the next head."""
        decision = apply_rule(self._rule, state)
        return with_gpus_named(state, decision) if self.spec.exact_gpus else decision
