"""Drops from a long answer of scontrol the jobs that the watchdog has nothing to do with, while the answer is read.

The watchdog must work with a queue of any size, when the controller no longer does, and whatever users have written into their
jobs. So it keeps only the records of jobs that it may have to change, and of the others as much as `JobTable` needs in order to
tell records from users' texts. Of the former it keeps `most_bytes` at most; if there are more, chance picks, so that no user can
choose jobs that are never released. Users can make as many requeued jobs that name nodes as they like, so these have less room, of
their own.
"""

from __future__ import annotations

import heapq
import random
import re
from collections import deque
from collections.abc import Iterator

import structlog

from controller.base.errors import SlurmReplyError
from controller.slurm.left_jobs import is_left, is_requeued_with_nodes
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.parse import parse_job
from controller.slurm.scontrol.rows import decode

log = structlog.get_logger(__name__)

_RECORD = b"JobId="
_PROMPT = b"scontrol: "
_MOST_BYTES = 1 << 26
"""About 40,000 jobs: more than the watchdog releases within one check."""
_MOST_REQUEUED_BYTES = 1 << 22
"""About 2,500 jobs: as many as the watchdog gives their own nodes back within some minutes."""
_MOST_RECORD_BYTES = 1 << 14
"""A longer record is passed on as an outline, and so is read by its id: a few users could use up `most_bytes` otherwise."""
_MOST_LINE_BYTES = 1 << 20
"""A longer line is shortened before its end has come: only its begin and its submit times are kept."""
_MOST_IDS = 200
"""Lines like records that are kept before each submit time: a name may have 1,024 bytes, which is room for 128 of them behind the
line with which its own record begins."""
_SEPARATOR = re.compile(rb"(end[0-9a-f]{16})\n")


class MarkedJobs:
    """A sieve for one answer, in which jobs come first. Invariant: the record of each job that the watchdog may have to change is
    passed on unless it is next to a user's line break, or left out by chance. Of each record next to a line break, its id and its
    submit time are passed on. Everything before and behind the jobs is passed on.
    """

    def __init__(
        self, clock: Clockface, most_bytes: int = _MOST_BYTES, most_requeued_bytes: int = _MOST_REQUEUED_BYTES
    ) -> None:
        self._submit = f" SubmitTime={clock.token}".encode()
        self._clock = clock
        self._chosen = _Chosen(most_bytes)
        self._requeued = _Chosen(most_requeued_bytes)
        self._separator = b""
        """Unguessable line between answers; scontrol prints it before the jobs, too."""
        self._place = "before"
        """Before, among or behind the jobs."""
        self._rest = b""
        """Begin of a line whose end has not come."""
        self._last = b""
        """The last record, if no line break of a user has been seen before it. Dropped or chosen when the next record comes."""
        self._in_text = False
        """True behind a line that is no record."""
        self._ids: deque[bytes] = deque(maxlen=_MOST_IDS)
        """Lines like records since the last submit time in a text."""

    @property
    def left_out(self) -> int:
        """Number of marked jobs that the watchdog may have to change and that were left out, because there are too many."""
        return self._chosen.left_out

    def feed(self, chunk: bytes) -> bytes:
        """Return what is to be kept of everything up to the end of the chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        kept = [piece for line in lines for piece in self._pieces(line + b"\n")]
        if len(self._rest) > _MOST_LINE_BYTES:
            self._rest = self._shortened(self._rest)
        return b"".join(kept)

    def _shortened(self, line: bytes) -> bytes:
        """Return the begin of a very long line without what is not needed. A record counts as one that is not understood."""
        begin, end = line[:_LONGEST_BEGIN], line[-len(self._submit) + 1 :]
        times = line.count(self._submit) - begin.count(self._submit)
        return begin + b" " + _HOLD + self._submit * min(times, 2) + end

    def end(self) -> bytes:
        """Return what is to be kept of the last line, and all that was kept back."""
        rest, self._rest = self._rest, b""
        kept = [*(self._pieces(rest) if rest else ()), *self._end_of_jobs()]
        if self.left_out:
            log.warning("jobs_left_for_the_next_check", count=self.left_out)
        return b"".join(kept)

    def _pieces(self, line: bytes) -> Iterator[bytes]:
        if self._place == "before":
            begin = 0
            while line.startswith(_PROMPT, begin):
                begin += len(_PROMPT)
            if not line.startswith(_RECORD, begin):
                found = _SEPARATOR.fullmatch(line, begin)
                self._separator = found[1] if found else self._separator
                yield line
                return
            yield line[:begin]
            self._place, line = "among", line[begin:]
        elif self._place == "among" and self._separator and line.endswith(self._separator + b"\n"):
            yield from self._end_of_jobs()
            self._place = "behind"
        if self._place == "behind":
            yield line
        elif line.startswith(_RECORD) and line.count(self._submit) == 1:
            yield from self._record(line)
        else:
            yield from self._text(line)

    def _record(self, line: bytes) -> Iterator[bytes]:
        if self._in_text:
            yield from self._end_of_text()
            yield self._outline(line)
            self._in_text = False
        else:
            yield from self._settle()
            self._last = line

    def _text(self, line: bytes) -> Iterator[bytes]:
        if self._last:
            yield self._outline(self._last)
            self._last = b""
        self._in_text = True
        is_like_record = line.startswith(_RECORD)
        if times := line.count(self._submit):
            yield from self._end_of_text()
            yield (line[: line.find(b" ")] if is_like_record else _TEXT) + self._submit * min(times, 2) + b"\n"
        elif is_like_record and 0 <= (end := line.find(b" ")) <= _LONGEST_ID:
            self._ids.append(line[:end] + b" \n")

    def _end_of_text(self) -> Iterator[bytes]:
        """Yield what is kept of the lines without a submit time. All that are not like records are one."""
        yield _TEXT + b"\n"
        yield from self._ids
        self._ids.clear()

    def _end_of_jobs(self) -> Iterator[bytes]:
        if self._in_text:
            yield from self._end_of_text()
            yield _NEIGHBOUR + self._submit + b"\n"
        yield from self._settle()
        self._in_text = False
        yield from self._chosen.take()
        yield from self._requeued.take()

    def _settle(self) -> Iterator[bytes]:
        """Choose or drop the last record, which no line break follows."""
        line, self._last = self._last, b""
        may_be_left = _HOLD in line or (_PIN in line and _HELD in line)
        may_be_requeued = (
            len(line) <= _MOST_RECORD_BYTES and _PENDING in line and not any(map(line.__contains__, _OTHERS))
        )
        if not may_be_left and not may_be_requeued:
            return
        try:
            jobs = parse_job(decode(line.rstrip(b"\n")), self._clock).jobs
        except SlurmReplyError:
            if may_be_left:
                yield self._outline(line)  # `JobTable` does not understand it either, and has it read by its id
            return
        if not any(map(is_left, jobs)):
            if may_be_requeued and any(map(is_requeued_with_nodes, jobs)):
                self._requeued.add(line)
        elif len(line) > _MOST_RECORD_BYTES:
            yield self._outline(line)
        else:
            self._chosen.add(line)

    def _outline(self, line: bytes) -> bytes:
        """Return id and submit time of a record that is to be read by its id."""
        return line[: line.find(b" ")] + self._submit + b"\n"


class _Chosen:
    """Records of `most_bytes` at most, drawn by chance from those that were added: each has the same chance, wherever it stands."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._drawn: list[tuple[float, int, bytes]] = []
        """A heap of (lot, place, record): the smallest lot is the next to be left out. Bound: `most_bytes`, or one record."""
        self._added = 0
        self.left_out = 0

    def add(self, record: bytes) -> None:
        self._added += 1
        self._left_bytes -= len(record)
        heapq.heappush(self._drawn, (random.random(), self._added, record))  # noqa: S311 - no secret
        while self._left_bytes < 0 and len(self._drawn) > 1:
            self._left_bytes += len(heapq.heappop(self._drawn)[2])
            self.left_out += 1

    def take(self) -> list[bytes]:
        """Return the chosen records in their order."""
        drawn, self._drawn = self._drawn, []
        return [record for _, _, record in sorted(drawn, key=lambda one: one[1])]


_TEXT = b"?"
"""Stands for lines that are no records: nothing in them is needed."""
_NEIGHBOUR = b"JobId=?"
"""Id of a line behind the last text, so that the text puts none of the chosen records behind it in doubt."""
_LONGEST_BEGIN = 64
_LONGEST_ID = len(_RECORD) + 10
_HOLD = HOLD_MARK.encode()
_PIN = PIN_MARK.encode()
_HELD = b" Priority=0 "
_PENDING = b" JobState=PENDING "
_OTHERS = (b" Restarts=0 ", b" ReqNodeList=(null) ")
"""Words of records that are not those of a requeued job with nodes. A text with them leaves out its own record alone."""
