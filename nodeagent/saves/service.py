"""The work of the agent between its reports: saves that the controller requests, and rows of jobs with news."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import structlog

from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.saves.coordinator import JobRequests, SaveAnswer, SaveCoordinator, SaveRequest
from nodeagent.saves.report_throttle import ReportThrottle
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.report import JobReport

log = structlog.get_logger(__name__)

_MAX_SAVE_S = 3600.0
_MAX_ID = 255
_GATHER_S = 0.05
"""News of several ranks that arrive together become one row."""


class JobChannel(JobRequests, Protocol):
    """The part of the job socket that the service uses."""

    def read_now(self) -> None:
        """Read what has arrived."""
        ...


class SaveService:
    """Runs the saves, and reports jobs with news early.

    Invariant: an answer goes out as soon as it is known, and the row of a job a moment after its news, within the limits of
    ReportThrottle.
    """

    def __init__(self, jobs: JobRegistry, channel: JobChannel, clock_ns: Callable[[], int]) -> None:
        self.saves = SaveCoordinator(jobs, channel, self._answered, clock_ns())
        self._jobs = jobs
        self._channel = channel
        self._clock_ns = clock_ns
        self._throttle = ReportThrottle()
        self._news = asyncio.Event()
        self._answer: Callable[[SaveAnswer], None] = lambda _answer: None
        self._measured: dict[int, JobReport] = {}
        """Newest row of each job. Bound: the jobs of one measurement."""
        self._guard = RowGuard("news of jobs")

    def request_save(self, request: SaveRequest) -> str:
        """Begin a save. Return why that is not possible, or empty: then the outcome is answered later."""
        if not 0 < len(request.id) <= _MAX_ID:
            return f"an id of {len(request.id)} characters: must be 1 to {_MAX_ID}"
        if not (0 < request.within_s <= _MAX_SAVE_S and 0 < request.still_s <= _MAX_SAVE_S):
            return f"within_s {request.within_s:g} and still_s {request.still_s:g}: must be above 0 and at most {_MAX_SAVE_S:g}"
        self.saves.start(request, self._clock_ns())
        self._news.set()
        return ""

    def request_go_on(self, save_id: str, job_id: int, restart: int) -> None:
        """Call a save off, and let the ranks that are paused for it train on."""
        self.saves.go_on(save_id, job_id, restart)

    def job_changed(self, job_id: int) -> None:
        """A job has news: its row goes out before the next report."""
        self._throttle.want(job_id)
        self._news.set()

    def take_measurements(self, rows: Iterable[JobReport]) -> None:
        """Take the rows of a report: until the next report, early rows repeat their measurements of the kernel and the GPUs."""
        self._measured = {row.job_id: row for row in rows}

    async def run(
        self, answer: Callable[[SaveAnswer], None], report_early: Callable[[tuple[JobReport, ...]], None]
    ) -> None:
        """Run until cancelled. Neither callable may wait or raise."""
        self._answer = answer
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER_S)
            try:
                if self.saves.open:
                    self._channel.read_now()
                now_ns = self._clock_ns()
                self.saves.tick(now_ns)
                if due := self._throttle.take(now_ns / 1e9):
                    report_early(self._rows(due, now_ns))
            except Exception:  # a bug must cost an answer, not the agent
                log.exception("save_service_failed")
            if not (self.saves.open or self._throttle.waiting):
                self._news.clear()

    def _rows(self, job_ids: Iterable[int], now_ns: int) -> tuple[JobReport, ...]:
        rows = (row for _, row in self._guard.each(job_ids, lambda job_id: self._jobs.row(job_id, now_ns)))
        return tuple(_joined(row, self._measured.get(row.job_id)) for row in rows if row is not None)

    def _answered(self, answer: SaveAnswer) -> None:
        log.info("save", id=answer.id, problem=answer.problem, step=answer.step, ranks=len(answer.ranks))
        self._answer(answer)


def _joined(row: JobReport, measured: JobReport | None) -> JobReport:
    if measured is None or measured.restart != row.restart:
        return row
    return replace(row, usage=measured.usage, gpus=measured.gpus, idle_gpus=measured.idle_gpus)
