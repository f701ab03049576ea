"""The log of the cluster's history: a file with one line for each job that has ended.

The first line names format and version; `record` describes the others. A line is appended with one write, so that a crash leaves
at most one incomplete line at the end, which the next start removes. The file is bounded: above its limits it is replaced by one
with the newest jobs alone, completely or not at all.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from policies.errors import TrainingError
from policies.learned.dl2.learning.record import LONGEST_LINE, JobRecord
from policies.learned.weights.files import write_whole

FORMAT = b"headway-dl2-history 1\n"
MOST_BYTES = 64 << 20
"""Bytes of the file that are read; of a longer file those at the end."""
_SPARE = 1.25
"""The file is rewritten when it has more than this factor times the jobs that it may have."""
DAY_S = 86400.0
_LINES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Size and age of a history."""

    jobs: int
    """Newest jobs that are kept."""
    age_s: float
    """Time after their ends for which jobs are kept, seconds."""


def read_history(path: Path) -> tuple[list[JobRecord], int]:
    """Return the jobs of the file, oldest first, and the number of lines that were refused. A missing file has none.

    Raises TrainingError for a file of another format or version, and OSError.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return [], 0
    with file:
        first = file.readline(LONGEST_LINE)
        if first != FORMAT and first != FORMAT[: len(first)]:
            raise TrainingError(
                f"{path}: begins with {first[:40]!r}, not with {FORMAT.decode().strip()!r}; move it away, or use the Headway "
                "that wrote it"
            )
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            file.seek(size - MOST_BYTES)
            file.readline(LONGEST_LINE)  # its begin was skipped
        return _records(_lines(file))


def _lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, and let other threads run now and then: decisions must not wait for a long file."""
    for number, line in enumerate(file):
        if number % _LINES_AT_ONCE == 0:
            time.sleep(0)
        yield line


def _content(records: Iterable[JobRecord]) -> bytes:
    return FORMAT + b"".join(record.to_line() for record in records)


def _records(lines: Iterable[bytes]) -> tuple[list[JobRecord], int]:
    """Return the records; of a job with several the last, which has the service of all of its runs."""
    found: dict[tuple[str, float], JobRecord] = {}
    refused = 0
    for line in lines:
        try:
            record = JobRecord.from_line(line)
        except TrainingError:
            refused += 1
            continue
        found.pop(record.key, None)
        found[record.key] = record
    return list(found.values()), refused


class History:
    """The history's file, for one writer.

    Invariants: the file has complete lines only, except after a crash or a failed write, which `open` and the next write mend; it
    has at most `_SPARE` times the jobs that the limits allow.
    """

    def __init__(self, path: Path, limits: HistoryLimits) -> None:
        self.path = path
        self.limits = limits
        self.jobs = 0
        """Number of jobs in the file."""
        self.size = 0
        """Bytes of the file, up to the end of the last complete line."""
        self.refused = 0
        """Number of lines that were refused when the file was opened."""
        self.newest_s = 0.0
        """Latest end of a job, Unix time."""
        self._recent: deque[tuple[str, float]] = deque(maxlen=limits.jobs)
        self._ends: set[tuple[str, float]] = set()
        """Id and end of these recent records: an outcome that is reported twice is recorded once."""

    def open(self, now_s: float) -> None:
        """Read the file, and write it again without lines that are damaged, too old or too many. Raises TrainingError, OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        records, self.refused = read_history(self.path)
        kept = self._kept(records, now_s)
        content = _content(kept)
        if not self.path.exists() or self.path.stat().st_size != len(content):
            write_whole(self.path, content)
        self.jobs, self.size = len(kept), len(content)
        for record in kept:
            self._note(record)

    def append(self, records: Iterable[JobRecord]) -> int:
        """Append these jobs, and return how many were new. Raises OSError; what was not written completely is removed again."""
        new = [record for record in records if (record.job_id, record.finish_time_s) not in self._ends]
        if not new:
            return 0
        lines = b"".join(record.to_line() for record in new)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < self.size:  # another program has removed or cut the file
                self.jobs = self.size = 0
            # The file may have an incomplete line, where removing it failed before.
            os.ftruncate(descriptor, self.size)
            os.lseek(descriptor, self.size, os.SEEK_SET)
            self._write(descriptor, lines if self.size else FORMAT + lines)
        finally:
            os.close(descriptor)
        for record in new:
            self._note(record)
        self.jobs += len(new)
        return len(new)

    def shorten(self, now_s: float) -> None:
        """If the file is too long, write it again with the newest jobs alone. Raises TrainingError and OSError; the file stays as
        it is then."""
        if self.jobs <= self.limits.jobs * _SPARE and self.size <= MOST_BYTES:
            return
        kept = self._kept(read_history(self.path)[0], now_s)
        content = _content(kept)
        write_whole(self.path, content)
        self.jobs, self.size = len(kept), len(content)

    def _write(self, descriptor: int, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self.size)
            raise
        self.size += len(content)

    def _kept(self, records: list[JobRecord], now_s: float) -> list[JobRecord]:
        oldest_s = now_s - self.limits.age_s
        return [record for record in records if record.finish_time_s >= oldest_s][-self.limits.jobs :]

    def _note(self, record: JobRecord) -> None:
        end = record.job_id, record.finish_time_s
        if len(self._recent) == self._recent.maxlen:
            self._ends.discard(self._recent[0])
        self._recent.append(end)
        self._ends.add(end)
        self.newest_s = max(self.newest_s, record.finish_time_s)
