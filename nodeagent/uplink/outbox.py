"""Reports on their way to the controller: kept, in order, until it says that it has stored them."""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from protos.headway.v1 import agent_pb2

LIMIT_BYTES = 8 << 20
"""About an hour of a busy node's reports."""
BATCH_BYTES = 64 << 10
"""Reports that are sent at once."""
_OVERHEAD_BYTES = 200
"""What Python needs for a report besides its content, roughly."""
_SHARES = 16
"""What is kept of one job takes at most one part in so many."""

_Slot = tuple[str, int, int]
"""Kind of report, job and run: of what is to be kept, only the newest of each is."""


@dataclass(frozen=True, slots=True)
class _Entry:
    report: agent_pb2.AgentReport
    size_bytes: int
    slot: _Slot | None


class Outbox:
    """Reports that are not acknowledged, by number.

    Invariants: numbers rise by one from 1, over all streams of one run of the agent; what is kept never takes more than
    `limit_bytes`; for want of room reports are given up oldest first, and each that was given up is counted in `dropped`. One
    that was put in with `keep` is not, but for what jobs have a part in, profiles and ends: of these a newer one of the same run
    takes the place of the older, one job's never take more than its share (the newest may), and where they fill all, the job
    that takes most gives way. To be used from one event loop.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.run_id = secrets.token_hex(16)
        """Reports are numbered within one run."""
        self.dropped = 0
        """Reports given up so far."""
        self.acknowledged = 0
        """Up to this number all are stored, or were given up."""
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._last = 0
        self._entries: dict[int, _Entry] = {}
        self._numbers: list[int] = []
        """The keys of `_entries`, ascending."""
        self._droppable: deque[int] = deque()
        """Those that may be given up, ascending; numbers that are gone already are skipped."""
        self._slots: dict[_Slot, int] = {}
        self._of_job: dict[int, dict[int, int]] = {}
        """Size by number of what is kept of a job, ascending."""
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> int:
        """Number of the newest report."""
        return self._last

    def put(self, report: agent_pb2.AgentReport, *, keep: bool = False) -> bool:
        """Number the report and keep it. False: there was no room, even after all that may be given up was."""
        self._last += 1
        report.number = self._last
        size_bytes = report.ByteSize() + _OVERHEAD_BYTES
        slot = _slot(report) if keep else None
        if slot is not None:
            self._make_way(slot, size_bytes)
        while self._size_bytes + size_bytes > self._limit_bytes and (self._drop_oldest() or self._drop_of_largest()):
            pass
        if self._size_bytes + size_bytes > self._limit_bytes:
            self.dropped += 1
            return False
        self._entries[self._last] = _Entry(report, size_bytes, slot)
        self._numbers.append(self._last)
        self._size_bytes += size_bytes
        if slot is not None:
            self._slots[slot] = self._last
            self._of_job.setdefault(slot[1], {})[self._last] = size_bytes
        elif not keep:
            self._droppable.append(self._last)
        self._news.set()
        return True

    def after(self, number: int) -> agent_pb2.AgentReport | None:
        """The oldest report with a higher number, as it is to be sent now."""
        at = bisect_right(self._numbers, number)
        if at == len(self._numbers):
            return None
        report = self._entries[self._numbers[at]].report
        report.dropped = self.dropped
        return report

    async def wait_after(self, number: int, most_bytes: int = BATCH_BYTES) -> list[agent_pb2.AgentReport]:
        """The oldest reports with higher numbers, as soon as there is one: as many as have room in so many bytes, at least one."""
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
        """The controller has stored all up to this number."""
        gone = bisect_right(self._numbers, number)
        for old in self._numbers[:gone]:
            self._forget(old)
        del self._numbers[:gone]
        self.acknowledged = max(self.acknowledged, min(number, self._last))
        while self._droppable and self._droppable[0] <= self.acknowledged:
            self._droppable.popleft()

    def _make_way(self, slot: _Slot, size_bytes: int) -> None:
        """Give up what the newest of its job takes the place of."""
        if slot in self._slots:
            self._drop(self._slots[slot])
        share_bytes = self._limit_bytes // _SHARES
        while (its := self._of_job.get(slot[1])) and sum(its.values()) + size_bytes > share_bytes:
            self._drop(next(iter(its)))

    def _drop_oldest(self) -> bool:
        if not self._droppable:
            return False
        self._drop(self._droppable.popleft())
        return True

    def _drop_of_largest(self) -> bool:
        """The oldest of the job of which most is kept."""
        if not self._of_job:
            return False
        largest = max(self._of_job.values(), key=lambda its: sum(its.values()))
        self._drop(next(iter(largest)))
        return True

    def _drop(self, number: int) -> None:
        self._forget(number)
        del self._numbers[bisect_right(self._numbers, number) - 1]
        self.dropped += 1

    def _forget(self, number: int) -> None:
        entry = self._entries.pop(number)
        self._size_bytes -= entry.size_bytes
        if entry.slot is not None:
            del self._slots[entry.slot]
            its = self._of_job[entry.slot[1]]
            del its[number]
            if not its:
                del self._of_job[entry.slot[1]]


def _slot(report: agent_pb2.AgentReport) -> _Slot | None:
    """None for what no job has a part in."""
    match report.WhichOneof("kind"):
        case "profile":
            return "profile", report.profile.job.job_id, report.profile.job.restart
        case "ended":
            return "ended", report.ended.job.job_id, report.ended.job.restart
        case _:
            return None
