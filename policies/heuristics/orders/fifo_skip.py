"""First in, first out with skipping: in arrival order, every job that fits starts.

Source: the "greedy" or list-scheduling form of FIFO (Graham, SIAM J. Appl. Math. 17(2), 1969). Large jobs may starve.
"""

from __future__ import annotations

from dataclasses import replace

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import choice, layout_named, order_named
from policies.ordering.naming_gpus import GPUS, with_gpus_named
from policies.ordering.run_rule import apply_rule
from policies.rule import Discipline, Rule, rule_text


class FifoSkip:
    """Starts jobs in order of submission; skips jobs that do not fit."""

    spec = PolicySpec(name="fifo-skip", source="List scheduling in arrival order (Graham 1969)")

    def __init__(self, layout: str = "consolidated", order: str = "submission", gpus: str = "any") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs.

        `order="slurm"` takes them by tier of their partition and Slurm's priority, where the cluster has these.
        `gpus="packed"` also names the GPUs of a node: those with the closest links.
        """
        self._rule = Rule(order_named(order), Discipline.SKIP, layout_named(layout))
        if choice("gpus", gpus, GPUS) == "any":
            self.rule = self._rule
        else:  # without a `rule` a simulator asks `decide`, because the rule alone names no GPUs
            self.spec = replace(type(self).spec, exact_gpus=True, ordered_by=rule_text(self._rule))

    def decide(self, state: ClusterState) -> Decision:
        """Start every waiting job that fits when its turn comes."""
        decision = apply_rule(self._rule, state)
        return with_gpus_named(state, decision) if self.spec.exact_gpus else decision
