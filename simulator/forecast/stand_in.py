"""The rule by which a forecast goes on: that of the policy, or one that stands in for it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Self

from policies.api import ENTRY_POINT_GROUP, Policy, load_policy
from policies.rule import Discipline, Order, Rule, rule_of

STAND_IN = "fifo-skip"
"""Name of the stand-in: waiting jobs in their present order, each job that fits starts."""
_HEURISTICS = "policies.heuristics."
_STAND_IN_RULE = Rule(Order.ARRIVAL, Discipline.SKIP)


@dataclass(frozen=True, slots=True)
class DecidingRule:
    """A rule, and the longest time between two of its decisions, seconds; 0: it decides at events only."""

    rule: Rule = _STAND_IN_RULE
    round_s: float = 0.0
    stand_in: str = STAND_IN
    """Name of the policy that the rule is, where it stands in for another; empty: it is that of the policy itself."""

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the policy's rule. A learned, remote or slow policy has none: another stands in for it."""
        rule = rule_of(policy)
        return cls() if rule is None else cls(rule, policy.spec.round_s, "")

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the rule of the built-in heuristic of that name with its default options, or the stand-in.

        No other policy is loaded: a learned one would take more time than the forecast, and that of a package could do anything.
        """
        found = entry_points(group=ENTRY_POINT_GROUP, name=name)
        if not any(entry.value.startswith(_HEURISTICS) for entry in found):
            return cls()
        return cls.of(load_policy(name))
