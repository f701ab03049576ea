"""What the agent does between its reports: saves that are asked for, and rows of jobs that the controller waits for."""

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
_ATTEND_S = 0.05
"""News of several ranks that come together are one row."""


class JobChannel(JobRequests, Protocol):
    """The job socket, as far as it is used here."""

    def read_now(self) -> None:
        """Reads what has come."""
        ...


class SaveService:
    """Invariant: an answer goes out when it is known, and news of a job a moment after they came, within Haste's limits."""

    def __init__(self, jobs: JobRegistry, mail: JobChannel, clock_ns: Callable[[], int]) -> None:
        self.saves = SaveCoordinator(jobs, mail, self._answered, clock_ns())
        self._jobs = jobs
        self._mail = mail
        self._clock_ns = clock_ns
        self._haste = ReportThrottle()
        self._news = asyncio.Event()
        self._answer: Callable[[SaveAnswer], None] = lambda _answer: None
        self._measured: dict[int, JobReport] = {}
        self._guard = RowGuard("news of jobs")

    def request_save(self, order: SaveRequest) -> str:
        """Have a job save and stand still; why not, or empty: then what came of it is answered later."""
        if not 0 < len(order.id) <= _MAX_ID:
            return f"an id of {len(order.id)} characters: must be 1 to {_MAX_ID}"
        if not (0 < order.within_s <= _MAX_SAVE_S and 0 < order.still_s <= _MAX_SAVE_S):
            return f"within_s {order.within_s:g} and still_s {order.still_s:g}: must be above 0 and at most {_MAX_SAVE_S:g}"
        self.saves.ask(order, self._clock_ns())
        self._news.set()
        return ""

    def request_go_on(self, save_id: str, job_id: int, restart: int) -> None:
        """Have a job train on that stands still for that save, or would."""
        self.saves.go_on(save_id, job_id, restart)

    def job_changed(self, job_id: int) -> None:
        """There is news of a job: its row goes out at once."""
        self._haste.want(job_id)
        self._news.set()

    def measured(self, rows: Iterable[JobReport]) -> None:
        """All rows of a report: what only the kernel and devices tell of a job is taken from them until the next."""
        self._measured = {row.job_id: row for row in rows}

    async def run(
        self, answer: Callable[[SaveAnswer], None], report_early: Callable[[tuple[JobReport, ...]], None]
    ) -> None:
        """Until cancelled. Neither may wait or raise."""
        self._answer = answer
        while True:
            await self._news.wait()
            await asyncio.sleep(_ATTEND_S)
            try:
                if self.saves.open:
                    self._mail.read_now()
                now_ns = self._clock_ns()
                self.saves.tick(now_ns)
                if due := self._haste.take(now_ns / 1e9):
                    report_early(self._rows(due, now_ns))
            except Exception:  # a bug must cost an answer, not the agent
                log.exception("attending_failed")
            if not (self.saves.open or self._haste.waiting):
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
