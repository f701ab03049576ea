"""Reports that wait for the controller: kept in order until the controller acknowledges that it has stored them."""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

from protos.headway.v1 import agent_pb2

LIMIT_BYTES = 8 << 20
"""About an hour of a busy node's reports."""
BATCH_BYTES = 64 << 10
"""Size of the reports that are sent in one message."""
_OVERHEAD_BYTES = 200
"""Approximate memory that Python needs for a report besides its content."""
_SHARES = 16
"""The kept reports of one job take at most one part in so many of the limit. Every job may have as large a part of the droppable
reports before it loses its own ahead of older ones."""

_Slot = tuple[str, int, int]
"""Kind of report, job and run. Of the reports to be kept, the outbox holds only the newest for each slot."""


@dataclass(frozen=True, slots=True)
class _Entry:
    report: agent_pb2.AgentReport
    size_bytes: int
    slot: _Slot | None
    droppable: bool


@dataclass(slots=True)
class _Droppable:
    """The droppable reports of one job. Invariant: a report leaves only when it is the oldest."""

    numbers: deque[int] = field(default_factory=deque)
    """Ascending. Bound: the reports of the outbox."""
    size_bytes: int = 0


class Outbox:
    """Reports that are not acknowledged, by number. To be used from one event loop.

    Invariants: numbers rise by one from 1, over all streams of one run of the agent; the reports never take more than
    `limit_bytes`; when there is no room, the oldest reports are dropped first, and `dropped` counts each. A job whose reports take
    more than an equal part, because they are very large or very many, loses its own oldest before others lose theirs.

    A report put in with `keep` is not dropped, with an exception for profiles and ends of runs, which jobs can cause: a newer one
    replaces an older one of the same run; those of one job never take more than its share (the newest may); and when they fill
    the outbox, the job that takes most loses its oldest.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.run_id = secrets.token_hex(16)
        """Identifies the run of the agent; reports are numbered within it."""
        self.dropped = 0
        """Reports dropped so far."""
        self.acknowledged = 0
        """All reports up to this number are stored, or were dropped."""
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._last = 0
        self._entries: dict[int, _Entry] = {}
        """Reports by number. Bound: `limit_bytes`, with `_OVERHEAD_BYTES` for each."""
        self._numbers: list[int] = []
        """The keys of `_entries`, ascending. Bound: as many."""
        self._droppable: dict[int | None, _Droppable] = {}
        """Reports that may be dropped, by job; None = those about the node. Bound: as many."""
        self._slots: dict[_Slot, int] = {}
        """Newest report of each slot by number. Bound: as many."""
        self._of_job: dict[int, dict[int, int]] = {}
        """Job → size of each kept report by number, ascending. Bound: as many."""
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> int:
        """Number of the newest report."""
        return self._last

    def put(self, report: agent_pb2.AgentReport, *, keep: bool = False) -> bool:
        """Number the report and add it. Return False if there was no room, even after everything that may be dropped was."""
        self._last += 1
        report.number = self._last
        size_bytes = report.ByteSize() + _OVERHEAD_BYTES
        slot = _slot(report) if keep else None
        if slot is not None:
            self._make_way(slot, size_bytes)
        while self._size_bytes + size_bytes > self._limit_bytes and (self._drop_droppable() or self._drop_of_largest()):
            pass
        if self._size_bytes + size_bytes > self._limit_bytes:
            self.dropped += 1
            return False
        self._entries[self._last] = _Entry(report, size_bytes, slot, droppable=not keep)
        self._numbers.append(self._last)
        self._size_bytes += size_bytes
        if slot is not None:
            self._slots[slot] = self._last
            self._of_job.setdefault(slot[1], {})[self._last] = size_bytes
        elif not keep:
            own = self._droppable.setdefault(_job(report), _Droppable())
            own.numbers.append(self._last)
            own.size_bytes += size_bytes
        self._news.set()
        return True

    def after(self, number: int) -> agent_pb2.AgentReport | None:
        """Return the oldest report with a higher number, ready to be sent; None = there is none."""
        at = bisect_right(self._numbers, number)
        if at == len(self._numbers):
            return None
        report = self._entries[self._numbers[at]].report
        report.dropped = self.dropped
        return report

    async def wait_after(self, number: int, most_bytes: int = BATCH_BYTES) -> list[agent_pb2.AgentReport]:
        """Wait for a report with a higher number. Return the oldest ones that fit into so many bytes, at least one."""
        while (report := self.after(number)) is None:
            self._news.clear()
            await self._news.wait()
        found, size_bytes = [report], report.ByteSize()
        while (report := self.after(found[-1].number)) is not None:
            size_bytes += report.ByteSize()
            if size_bytes > most_bytes:
                break
            found.append(report)
        return found

    def acknowledge(self, number: int) -> None:
        """Remove all reports up to this number: the controller has stored them."""
        gone = bisect_right(self._numbers, number)
        for old in self._numbers[:gone]:
            self._forget(old)
        del self._numbers[:gone]
        self.acknowledged = max(self.acknowledged, min(number, self._last))

    def _make_way(self, slot: _Slot, size_bytes: int) -> None:
        """Drop the reports of the same job which a new report replaces."""
        if slot in self._slots:
            self._drop(self._slots[slot])
        share_bytes = self._limit_bytes // _SHARES
        while (sizes := self._of_job.get(slot[1])) and sum(sizes.values()) + size_bytes > share_bytes:
            self._drop(next(iter(sizes)))

    def _drop_droppable(self) -> bool:
        """Drop the oldest droppable report: of the job that has most, if that is more than its part. Return False if there is none.

        The parts are equal: one for each job, and one for the reports about the node. More than `_SHARES` are not made. Usual jobs
        keep to theirs, because their reports are smaller than those about the node: so all reports go back to the same time.
        """
        if not self._droppable:
            return False
        part_bytes = sum(own.size_bytes for own in self._droppable.values()) // min(len(self._droppable), _SHARES)
        of_jobs = (own for job_id, own in self._droppable.items() if job_id is not None)
        largest = max(of_jobs, key=lambda own: own.size_bytes, default=None)
        if largest is not None and largest.size_bytes > part_bytes:
            self._drop(largest.numbers[0])
        else:
            self._drop(min(own.numbers[0] for own in self._droppable.values()))
        return True

    def _drop_of_largest(self) -> bool:
        """Drop the oldest kept report of the job whose kept reports take most. Return False if there is none."""
        if not self._of_job:
            return False
        largest = max(self._of_job.values(), key=lambda sizes: sum(sizes.values()))
        self._drop(next(iter(largest)))
        return True

    def _drop(self, number: int) -> None:
        self._forget(number)
        del self._numbers[bisect_right(self._numbers, number) - 1]
        self.dropped += 1

    def _forget(self, number: int) -> None:
        entry = self._entries.pop(number)
        self._size_bytes -= entry.size_bytes
        if entry.droppable:
            job_id = _job(entry.report)
            own = self._droppable[job_id]
            own.numbers.popleft()
            own.size_bytes -= entry.size_bytes
            if not own.numbers:
                del self._droppable[job_id]
        if entry.slot is not None:
            del self._slots[entry.slot]
            sizes = self._of_job[entry.slot[1]]
            del sizes[number]
            if not sizes:
                del self._of_job[entry.slot[1]]


def _job(report: agent_pb2.AgentReport) -> int | None:
    """Return the job of a row; None for reports about the node."""
    return report.job.job.job_id if report.WhichOneof("kind") == "job" else None


def _slot(report: agent_pb2.AgentReport) -> _Slot | None:
    """Return the slot of a report that a job can cause; None for others."""
    match report.WhichOneof("kind"):
        case "profile":
            return "profile", report.profile.job.job_id, report.profile.job.restart
        case "ended":
            return "ended", report.ended.job.job_id, report.ended.job.restart
        case _:
            return None
