"""The log of the cluster's history: a file with one line for each job that has ended.

The first line names format and version; `record` describes the others. A line is appended with one write, so that a crash leaves
at most one incomplete line at the end, which the next start removes. The file is bounded: above its limits it is replaced by one
with the newest jobs alone, completely or not at all. A file that another program has changed is read again before the next line is
appended, and what it has is kept.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from policies.errors import TrainingError
from policies.learned.dl2.learning.record import LONGEST_LINE, JobRecord
from policies.learned.weights.files import write_whole

FORMAT = b"headway-dl2-history 2\n"
_FORMATS = (FORMAT, b"headway-dl2-history 1\n")
"""Formats that are read. Those before the first have no shares of trainings (`record`); such a file is written anew."""
MOST_BYTES = 64 << 20
"""Bytes of the file that are read; of a longer file those at the end."""
_SPARE = 1.25
"""The file is rewritten when it has more than this factor times the jobs that it may have."""
_LEFT = 0.75
"""Share of `MOST_BYTES` that is kept when a file is too long, so that not every further line makes it too long again."""
MOST_JOBS = 100_000
"""Maximum of the limit `jobs`: `_SPARE` times as many lines of usual length (300 bytes) are shorter than `MOST_BYTES`."""
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
        if not any(form.startswith(first) for form in _FORMATS):
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


class _Stamp(NamedTuple):
    """Identity of a file and of its content: every change makes another one."""

    inode: int
    size: int
    changed_ns: int


class History:
    """The history's file, for one writer.

    Invariants: the file has complete lines only, except after a crash or a failed write, which `open` and the next write mend; it
    has at most `_SPARE` times the jobs that the limits allow. Only jobs that the file has are known as recorded.
    """

    def __init__(self, path: Path, limits: HistoryLimits) -> None:
        self.path = path
        self.limits = limits
        self.jobs = 0
        """Number of jobs in the file."""
        self.size = 0
        """Bytes of the file, up to the end of the last complete line."""
        self.refused = 0
        """Number of lines that were refused when the file was last read."""
        self.newest_s = 0.0
        """Latest end of a job, Unix time."""
        self._recent: deque[tuple[str, float]] = deque(maxlen=limits.jobs)
        self._ends: set[tuple[str, float]] = set()
        """Id and end of these recent records: an outcome that is reported twice is recorded once. Bound: `limits.jobs`."""
        self._stamp: _Stamp | None = None
        """The file after the last write of this object."""

    def open(self, now_s: float) -> None:
        """Read the file, and write it again without lines that are damaged, too old or too many. Raises TrainingError, OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        records, self.refused = read_history(self.path)
        self._begin_with(self._kept(records, now_s), MOST_BYTES)

    def append(self, records: Iterable[JobRecord]) -> int:
        """Append these jobs, and return how many were new. What was not written completely is removed again.

        Raises OSError, and TrainingError if another program has put a file of another format in its place.
        """
        if _stamp_of(self.path) != self._stamp:  # by another program, or by a write that failed
            found, self.refused = read_history(self.path)
            self._begin_with(found[-self.limits.jobs :], MOST_BYTES)
        new = [record for record in records if (record.job_id, record.finish_time_s) not in self._ends]
        if not new:
            return 0
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.lseek(descriptor, self.size, os.SEEK_SET)
            self._write(descriptor, b"".join(record.to_line() for record in new))
        finally:
            os.close(descriptor)
        for record in new:
            self._note(record)
        self.jobs += len(new)
        return len(new)

    def jobs_since(self, oldest_s: float) -> int:
        """Return the number of jobs that have ended since that Unix time."""
        return sum(end_s >= oldest_s for _, end_s in self._recent)

    def shorten(self, now_s: float) -> None:
        """If the file is too long, write it again with the newest jobs alone. Raises TrainingError and OSError; the file stays as
        it is then."""
        if self.jobs <= self.limits.jobs * _SPARE and self.size <= MOST_BYTES:
            return
        most_bytes = MOST_BYTES if self.size <= MOST_BYTES else int(_LEFT * MOST_BYTES)
        self._begin_with(self._kept(read_history(self.path)[0], now_s), most_bytes)

    def _begin_with(self, records: Sequence[JobRecord], most_bytes: int) -> None:
        """Make these the jobs of the file, without the oldest of them if the file would be longer than that. Raises OSError."""
        lines = [record.to_line() for record in records]
        size = len(FORMAT) + sum(map(len, lines))
        first = 0
        while size > most_bytes:
            size -= len(lines[first])
            first += 1
        present = _stamp_of(self.path)
        if present is None or present.size != size or not self._has_present_format():
            write_whole(self.path, FORMAT + b"".join(lines[first:]))
        self.jobs, self.size, self.newest_s = len(lines) - first, size, 0.0
        self._recent.clear()
        self._ends.clear()
        for record in records[first:]:
            self._note(record)
        self._stamp = _stamp_of(self.path)

    def _has_present_format(self) -> bool:
        with self.path.open("rb") as file:
            return file.readline(LONGEST_LINE) == FORMAT

    def _write(self, descriptor: int, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self.size)
            self._stamp = _stamp(os.fstat(descriptor))
            raise
        self.size += len(content)
        self._stamp = _stamp(os.fstat(descriptor))

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


def _stamp(found: os.stat_result) -> _Stamp:
    return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


def _stamp_of(path: Path) -> _Stamp | None:
    """Return the stamp of the file; None if there is none. Raises OSError."""
    try:
        return _stamp(path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None
