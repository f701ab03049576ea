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


@dataclass(frozen=True, slots=True)
class _Entry:
    report: agent_pb2.AgentReport
    size_bytes: int


class Outbox:
    """Reports that are not acknowledged, by number.

    Invariants: numbers rise by one from 1, over all streams of one run of the agent; what is kept never takes more than
    `limit_bytes`; for want of room reports are given up oldest first, but never one that was put in with `keep`, and each that
    was given up is counted in `dropped`. To be used from one event loop.
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
        while self._size_bytes + size_bytes > self._limit_bytes and self._drop_oldest():
            pass
        if self._size_bytes + size_bytes > self._limit_bytes:
            self.dropped += 1
            return False
        self._entries[self._last] = _Entry(report, size_bytes)
        self._numbers.append(self._last)
        self._size_bytes += size_bytes
        if not keep:
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
            self._size_bytes -= self._entries.pop(old).size_bytes
        del self._numbers[:gone]
        self.acknowledged = max(self.acknowledged, min(number, self._last))
        while self._droppable and self._droppable[0] <= self.acknowledged:
            self._droppable.popleft()

    def _drop_oldest(self) -> bool:
        if not self._droppable:
            return False
        number = self._droppable.popleft()
        self._size_bytes -= self._entries.pop(number).size_bytes
        del self._numbers[bisect_right(self._numbers, number) - 1]
        self.dropped += 1
        return True
