"""Policies that are one order and one discipline.

Most heuristics have this form. A policy with a `rule` may be carried out by the rule alone: a simulator
that keeps its queues in that order decides in microseconds, and makes the same decisions as `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Order(IntEnum):
    """Sort key of jobs, least first; ties go by submission."""

    ARRIVAL = 0
    GPUS = 1
    DURATION = 2
    """Estimated duration, from the first start to the finish."""
    REMAINING = 3
    """Estimated run time that is left."""
    ATTAINED = 4
    """Attained GPU-seconds."""
    REMAINING_GPUS = 5
    """Estimated run time that is left, times GPUs."""
    QUEUES = 6
    """Two queues: jobs below the threshold of attained GPU-seconds, then the others."""
    LEVELS = 8
    """Levels of attained GPU-seconds: below the threshold, below twice the threshold, below four times, and so on."""
    SLURM = 7
    """Slurm's order: highest tier of the partitions first, then highest priority; of submission where neither is known."""


class Discipline(IntEnum):
    """Rule by which jobs start, going down the order."""

    STRICT = 0
    """Every job that fits, up to the first that does not."""
    SKIP = 1
    """Every job that fits."""
    BACKFILL = 2
    """Every job that fits and does not delay the first that does not (EASY)."""
    SELECT = 3
    """Every job that can be placed with all that were selected before it; running jobs that are not selected stop."""


class Layout(IntEnum):
    """Placement that a job may get."""

    CONSOLIDATED = 0
    """Only consolidated best fit; the job waits for it."""
    ANYWHERE = 1
    """The freest nodes, where the job cannot be consolidated."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An order, a discipline, and where jobs may be placed."""

    order: Order
    discipline: Discipline
    layout: Layout = Layout.CONSOLIDATED
    threshold_gpu_s: float = 0.0
    """Threshold of `Order.QUEUES`, and of the first level of `Order.LEVELS`."""
    by_tier: bool = False
    """True: jobs of a higher tier of Slurm's partitions come first, and the order counts within a tier. It has no effect where
    tiers are not known, as in simulations."""


_ORDERS = {
    Order.ARRIVAL: "by time of submission",
    Order.GPUS: "by number of GPUs, fewest first",
    Order.DURATION: "by expected run time, shortest first",
    Order.REMAINING: "by remaining time, shortest first",
    Order.ATTAINED: "by GPU time used so far, least first",
    Order.REMAINING_GPUS: "by remaining time multiplied by GPUs, least first",
    Order.QUEUES: "by GPU time used so far, in classes",
    Order.LEVELS: "by GPU time used so far, in classes",
    Order.SLURM: "by tier of their partition, then by Slurm's priority (order=slurm)",
}
_PASSING = {
    Discipline.STRICT: ", and lets no job pass the first",
    Discipline.SKIP: ", and lets jobs that fit pass those that do not",
    Discipline.BACKFILL: ", and lets jobs pass the first that does not fit if they do not delay it",
    Discipline.SELECT: "",
}


def rule_text(rule: Rule) -> str:
    """Return how the rule orders waiting jobs, in words that follow "orders": "by remaining time, shortest first"."""
    tier = "by tier of their partition (order=tier), within a tier " if rule.by_tier else ""
    return f"{tier}{_ORDERS[rule.order]}{_PASSING[rule.discipline]}"


def rule_of(policy: object) -> Rule | None:
    """Return the rule that the policy's `decide` applies: its attribute `rule`; None if it has none.

    In a policy of another package, an attribute of that name may be anything, and reading it may fail.
    """
    try:
        found = getattr(policy, "rule", None)
    except Exception:  # noqa: BLE001 - third-party code may raise anything; without a rule, `decide` is asked
        return None
    return found if isinstance(found, Rule) else None
