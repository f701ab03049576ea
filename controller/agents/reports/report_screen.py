"""Reports of agents that are not used: counts them, and logs one line a minute at most for each node and reason."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import structlog

from controller.agents.reports.claims import out_of_bounds, tidy
from controller.profiles.sightings import Arrival

log = structlog.get_logger(__name__)

_LOG_EVERY_S = 60.0
_MOST_REMEMBERED = 8192
_MOST_WORDS = 200
_EXPECTED = (ArithmeticError, TypeError, ValueError, sqlite3.Error)
"""Errors that a report's values can cause, logged without a traceback."""


class Allocated(Protocol):
    """Nodes on which Slurm runs jobs: controller.agents.reports.allocations.Allocations."""

    def excludes(self, node: str, job_id: int, time_s: float) -> bool:
        """Return whether Slurm had that job only on other nodes at that time."""


class ReportScreen:
    """Invariant: a report that passes is within bounds, and about a job that may be on that node.

    The log grows by one line a minute at most for each node and reason, whatever agents send.
    """

    def __init__(self, allocated: Allocated | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.counted: Counter[str] = Counter()
        """Number of reports that were not used, by reason: bounds, allocation, limit, store or listener.
        Bound: these reasons."""
        self._allocated = allocated
        self._monotonic = monotonic
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        """Time of the last log line, and the number of reports left out since then. Bound: `_MOST_REMEMBERED`."""

    def screen(self, arrival: Arrival) -> None:
        """Empty a report that may not be used. It keeps its number and is acknowledged, so that it is not sent again."""
        report = arrival.report
        wrong = out_of_bounds(report)
        if wrong:
            self._empty(arrival, "bounds", f"{wrong} is out of bounds")
            return
        tidy(report)
        job_id = _job_id(arrival)
        if (
            job_id
            and self._allocated is not None
            and self._allocated.excludes(arrival.node, job_id, arrival.reported_s)
        ):
            self._empty(arrival, "allocation", f"Slurm has job {job_id} on other nodes only")

    def not_stored(self, node: str, error: Exception) -> None:
        """Count a report that the store refused. Call it while the error is being handled."""
        self._note(node, "store", f"{type(error).__name__}: {error}", trace=not isinstance(error, _EXPECTED))

    def over_limit(self, node: str, number: int) -> None:
        """Count reports that the store left out, because it had taken too many of the node, or about too many jobs."""
        self._note(node, "limit", f"{number} reports are beyond what the store takes of a node", number=number)

    def listener_failed(self, node: str, error: Exception) -> None:
        """Count a report at which a listener failed. Call it while the error is being handled."""
        self._note(node, "listener", f"{type(error).__name__}: {error}", trace=True)

    def _empty(self, arrival: Arrival, reason: str, problem: str) -> None:
        report = arrival.report
        kind = report.WhichOneof("kind")
        if kind is not None:
            report.ClearField(kind)
        report.time_s = 0.0
        report.dropped = 0
        report.ClearField("monotonic_ns")
        self._note(arrival.node, reason, problem)

    def _note(self, node: str, reason: str, problem: str, *, trace: bool = False, number: int = 1) -> None:
        """Count and log reports. `trace`: the error is a bug, so its traceback is logged."""
        self.counted[reason] += number
        now_s = self._monotonic()
        at_s, since = self._logged.pop((node, reason), (-_LOG_EVERY_S, 0))
        if now_s - at_s < _LOG_EVERY_S:
            self._logged[node, reason] = at_s, since + number
            return
        log.warning(
            "report_left_out", node=node, reason=reason, problem=problem[:_MOST_WORDS], unlogged=since, exc_info=trace
        )
        self._logged[node, reason] = now_s, 0
        while len(self._logged) > _MOST_REMEMBERED:
            del self._logged[next(iter(self._logged))]


def _job_id(arrival: Arrival) -> int:
    """Return the job that a report is about; 0 for none. A report of an end only says that the job has left that node."""
    match arrival.report.WhichOneof("kind"):
        case "job":
            return arrival.report.job.job.job_id
        case "profile":
            return arrival.report.profile.job.job_id
        case _:
            return 0
