"""Limits what the reports of one node add to the store, so that an agent that lies cannot fill the disk."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

import structlog

log = structlog.get_logger(__name__)

PERIOD_S = 600.0
MAX_REPORTS = 50_000
"""Reports of one node within a period: 250 jobs that report every five seconds, and what waited for a controller that was away."""
MAX_RUNS = 1_000
"""Runs of jobs that one node reports within a period."""


@dataclass(slots=True)
class _Taken:
    """Reports of one node within the present period."""

    reports: int = 0
    runs: set[Hashable] = field(default_factory=set)
    """Bound: `MAX_RUNS`."""
    refused: bool = False


class Intake:
    """Invariant: within a period at most `MAX_REPORTS` reports of a node are stored, about `MAX_RUNS` runs at most."""

    def __init__(self) -> None:
        self._period: int | None = None
        self._of_node: dict[str, _Taken] = {}
        """Bound: the nodes that have reported within the period."""

    def permits(self, node: str, runs: Collection[Hashable], time_s: float) -> bool:
        """Count a report about these runs, and return whether it may be stored. The first that may not is logged."""
        period = int(time_s // PERIOD_S)
        if period != self._period:  # also when the clock was set back
            self._period = period
            self._of_node.clear()
        taken = self._of_node.setdefault(node, _Taken())
        new = set(runs) - taken.runs
        if taken.reports < MAX_REPORTS and len(taken.runs) + len(new) <= MAX_RUNS:
            taken.reports += 1
            taken.runs |= new
            return True
        if not taken.refused:
            taken.refused = True
            log.warning("reports_left_out", node=node, reports=taken.reports, runs=len(taken.runs), seconds=PERIOD_S)
        return False
