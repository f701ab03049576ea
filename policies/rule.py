"""Policies that are one order and one discipline.

Most heuristics are no more than that. A policy that says so in its `rule` may be carried out by the rule alone: a simulator
that keeps its queues in that order decides in microseconds, and comes to the same decisions as `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable


class Order(IntEnum):
    """By what jobs are sorted, least first; ties go by submission."""

    ARRIVAL = 0
    GPUS = 1
    DURATION = 2
    """Estimated duration, from the first start to the finish."""
    REMAINING = 3
    """Estimated run time that is left."""
    ATTAINED = 4
    """GPU-seconds had so far."""
    REMAINING_GPUS = 5
    """Estimated run time that is left, times GPUs."""
    QUEUES = 6
    """Two queues: below the threshold of GPU-seconds had so far, then the others."""


class Discipline(IntEnum):
    """Who starts, going down the order."""

    STRICT = 0
    """Whoever fits; the first that does not ends the pass."""
    SKIP = 1
    """Whoever fits."""
    BACKFILL = 2
    """Whoever fits and does not delay the first that does not (EASY)."""
    SELECT = 3
    """Whoever can be laid out with all that were selected before; running jobs that are not selected stop."""


class Layout(IntEnum):
    """Where a job may be placed."""

    CONSOLIDATED = 0
    """By consolidated best fit only; it waits until it can be."""
    ANYWHERE = 1
    """On the freest nodes where it cannot be consolidated."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An order, a discipline, and where jobs may be placed."""

    order: Order
    discipline: Discipline
    layout: Layout = Layout.CONSOLIDATED
    threshold_gpu_s: float = 0.0
    """Of `Order.QUEUES`."""


@runtime_checkable
class Ruled(Protocol):
    """A policy that is its rule."""

    @property
    def rule(self) -> Rule:
        """What `decide` follows."""
