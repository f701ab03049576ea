"""Turns the text of one reading into objects, and parses again only what has changed.

Ten thousand jobs are 15 MB of text that is nearly the same every few seconds. Lines are compared as bytes (a memcmp); those
that differ are compared once more without the fields that tick; only what is left is parsed. An unchanged job is the same
object as before, so that callers can tell by identity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter

from controller.base.errors import SlurmReplyError
from controller.slurm.model.job import SlurmJob
from controller.slurm.records import JobRecord
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.parse import parse_job
from controller.slurm.scontrol.rows import decode

Complain = Callable[[str, str], None]
"""Called with the id of a job that is present but cannot be parsed, and the problem."""
_JOB = b"JobId="
_MOST_DIGITS = 10
"""Digits of the largest job id."""
_NO_JOBS = b"No jobs in the system"


@dataclass(slots=True)
class _Entry:
    line: bytes
    """With its line break."""
    record: JobRecord
    ticking: tuple[tuple[int, int], ...] | None = None
    """Places of the ticking fields in the line; found when the line ticks for the first time."""


@dataclass(frozen=True, slots=True)
class JobReading:
    """Jobs of one reading, and the ids of jobs that must be read one by one."""

    jobs: tuple[SlurmJob, ...]
    contested: frozenset[int] = frozenset()
    """Ids on lines that a line break in a user's text may have made."""
    doubtful: bytes = b""
    """Those lines, without ticking fields. While they stay the same, the jobs need not be read again."""
    likely: frozenset[int] = frozenset()
    """The contested ids on lines with a true submit time. A text can have any number of ids, but is next to one such time."""
    former: Mapping[int, JobRecord] = field(default_factory=dict)
    """Records of contested ids as of the reading before, if they were beyond doubt then."""


class JobTable:
    """The jobs of the last reading by numeric id.

    Invariant: a record is kept only for a line that has exactly one true submit time and is next to no line without
    one. So no user's text ever becomes a record of its own.
    """

    def __init__(self, clock: Clockface) -> None:
        self._clock = clock
        self._submit = f" SubmitTime={clock.token}".encode()
        self._evaluated = f" LastSchedEval={clock.token}".encode()
        token = re.escape(clock.token)
        self._ticks = re.compile(
            rf" RunTime=\S+(?= TimeLimit=\S+ TimeMin=\S+ SubmitTime={token})| LastSchedEval={token}\d+(?: Scheduler=\S+)?".encode()
        )
        self._entries: dict[bytes, _Entry] = {}
        """Entries of the last reading. Bound: the jobs of one reading."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def records(self) -> Iterable[JobRecord]:
        """Records of the last reading, without doubtful ones; an iterator for one use, now or later."""
        # A reading is never changed after it was made, only replaced by the next.
        return map(attrgetter("record"), self._entries.values())

    def knows(self, raw_id: int) -> bool:
        """Return whether the last reading had a record of that number, beyond doubt."""
        return str(raw_id).encode() in self._entries

    def update(self, section: bytes) -> JobReading:
        """Read a whole answer to `show job`."""
        entries, changed = self._compare(section)
        doubtful = self._take(changed, section, entries) if changed else []
        contested = self._withdraw(doubtful, entries) if doubtful else frozenset()
        former = self._entries
        self._entries = entries
        jobs = tuple(chain.from_iterable([entry.record.jobs for entry in entries.values()]))
        return JobReading(
            jobs,
            contested,
            self._ticks.sub(b"", b"\n".join(doubtful)),
            contested.intersection(_number(_id_on(line)) for line in doubtful if self._submit in line),
            {number: former[key].record for number in contested if (key := str(number).encode()) in former},
        )

    def _compare(self, section: bytes) -> tuple[dict[bytes, _Entry], list[tuple[int, bytes, bytes]]]:
        """Return the entries of unchanged lines in the order of the reading, and (number, id, line) of the others.

        A line of the last reading is compared in place, where it should come next: to copy it from the text would cost more than
        everything else.
        """
        before = self._entries
        entries: dict[bytes, _Entry] = {}
        changed: list[tuple[int, bytes, bytes]] = []
        expected = iter(before.items())
        next_id, next_entry = next(expected, _NO_RECORD)
        number = begin = 0
        while begin < len(section):
            if next_entry is not _NOTHING:
                for job_id, entry in chain([(next_id, next_entry)], expected):
                    if not section.startswith(entry.line, begin) or job_id in entries:
                        next_id, next_entry = job_id, entry
                        break
                    entries[job_id] = entry
                    begin += len(entry.line)
                    number += 1
                else:
                    next_id, next_entry = _NO_RECORD
                    continue
            end = section.find(b"\n", begin)
            end = len(section) if end < 0 else end
            line = section[begin:end]
            job_id = _id_on(line)
            former = before.get(job_id)
            if former is not None and _is_line_of(former, line) and job_id not in entries:
                entries[job_id] = former
            elif line:
                changed.append((number, job_id, line))
                # Keeps the order of the reading; removed again if the line turns out to be no record.
                entries.setdefault(job_id, _NOTHING)
            if former is not None:  # those expected before it are gone, or at another place now
                while next_entry is not _NOTHING and next_id != job_id:
                    next_id, next_entry = next(expected, _NO_RECORD)
                next_id, next_entry = next(expected, _NO_RECORD)
            begin, number = end + 1, number + 1
        return entries, changed

    def _take(
        self, changed: list[tuple[int, bytes, bytes]], section: bytes, entries: dict[bytes, _Entry]
    ) -> list[bytes]:
        """Parse the lines that are new or different. Returns those that are in doubt, and their neighbours."""
        doubtful = self._doubtful_lines(changed, section, entries)
        for number, job_id, line in changed:
            if number in doubtful:
                continue
            former = self._entries.get(job_id)
            if former is not None and self._only_ticked(former, line):
                former.line = line + b"\n"
                entries[job_id] = former
                continue
            try:
                record = parse_job(decode(line), self._clock)
            except SlurmReplyError:
                doubtful.add(number)
                continue
            entries[job_id] = _Entry(line + b"\n", keep_identity(record, former.record if former else None))
        if not doubtful:
            return []
        lines = section.split(b"\n")
        return [lines[number] for number in sorted(doubtful)]

    def _withdraw(self, doubtful: list[bytes], entries: dict[bytes, _Entry]) -> frozenset[int]:
        """Remove the entries of doubtful lines. Returns the ids on these lines that no line beyond doubt has.

        So a text that names the ids of others puts none of their jobs in doubt.
        """
        texts = set(doubtful)
        proven = {
            _number(key) for key, entry in entries.items() if entry is not _NOTHING and entry.line[:-1] not in texts
        }
        ids = [_number(_id_on(line)) for line in doubtful if line.startswith(_JOB)]
        # For 0, scontrol would show all jobs.
        contested = frozenset(number for number in ids if number > 0) - proven
        for key in [key for key, entry in entries.items() if entry is _NOTHING or _number(key) in contested]:
            del entries[key]
        return contested

    def _doubtful_lines(
        self, changed: list[tuple[int, bytes, bytes]], section: bytes, entries: dict[bytes, _Entry]
    ) -> set[int]:
        """Return the numbers of lines that are no record, of their neighbours, and of other lines that claim the same id."""
        doubtful: set[int] = set()
        lines: list[bytes] = []
        looked_at = 0
        for number, _, line in changed:
            if number == 0 and line.startswith(_NO_JOBS):  # elsewhere it is a user's text
                doubtful.add(number)
            elif not line.startswith(_JOB) or line.count(self._submit) != 1:
                if (
                    number < looked_at
                ):  # inside the same run: it has the same neighbours, and a text may have thousands of lines
                    continue
                lines = lines or section.split(b"\n")
                around = self._around(number, lines)
                doubtful.update(around)
                looked_at = around[-1]
        broken = {lines[number] for number in doubtful} if lines else set()
        claimed: dict[bytes, int] = {}
        for number, job_id, _ in changed:
            if number in doubtful:
                continue
            unchanged = entries[job_id]
            if job_id in claimed:
                doubtful.update((number, claimed[job_id]))
            elif unchanged is not _NOTHING and unchanged.line[:-1] not in broken:
                entries[job_id] = _NOTHING
                doubtful.add(number)
            claimed[job_id] = number
        return doubtful

    def _around(self, number: int, lines: list[bytes]) -> range:
        """Return the numbers of the lines without a submit time around this one, and of the records before and after them."""
        first = number - 1
        while first > 0 and self._submit not in lines[first]:
            first -= 1
        last = number + 1
        while last < len(lines) - 1 and self._submit not in lines[last]:
            last += 1
        return range(max(first, 0), min(last, len(lines) - 1) + 1)

    def _only_ticked(self, former: _Entry, line: bytes) -> bool:
        """Return whether the line differs from the one before only in ticking fields."""
        if former.ticking is None:
            former.ticking = self._ticking(former.line)
        ticking = []
        old = new = 0
        for begin, end in former.ticking:
            # Equal up to here, so the field begins at the same place, moved by the growth of the fields before it.
            here = begin + new - old
            if line[new:here] != former.line[old:begin]:
                return False
            old, new = end, _end_of_ticking(line, here)
            ticking.append((here, new))
        if line[new:] != former.line[old:-1]:
            return False
        former.ticking = tuple(ticking)
        return True

    def _ticking(self, line: bytes) -> tuple[tuple[int, int], ...]:
        """Return the places of run time and last evaluation: both are next to a time that only Slurm can have printed."""
        submit = line.find(self._submit)
        begins = [line.rfind(b" RunTime=", 0, submit), line.find(self._evaluated, submit)]
        return tuple((begin, _end_of_ticking(line, begin)) for begin in begins if begin >= 0)


def _id_on(line: bytes) -> bytes:
    """Return what stands where a record has its id."""
    return line[6:end] if (end := line.find(b" ", 6)) >= 0 else b""


def _is_line_of(entry: _Entry, line: bytes) -> bool:
    """Return whether it is the entry's line. A text may repeat an id a thousand times: a long line is not copied for each."""
    return len(entry.line) == len(line) + 1 and entry.line.startswith(line)


def _end_of_ticking(line: bytes, begin: int) -> int:
    """Return the end of the field, with the name of the scheduler that may follow it."""
    end = line.find(b" ", begin + 1)
    return line.find(b" ", end + 1) if line.startswith(b" Scheduler=", end) else end


def keep_identity(record: JobRecord, former: JobRecord | None) -> JobRecord:
    """Return the record with the former objects wherever they are equal."""
    if former is None:
        return record
    if former == record:
        return former
    known = {job.key: job for job in former.jobs}
    jobs = tuple(old if (old := known.get(job.key)) == job else job for job in record.jobs)
    return replace(record, jobs=jobs)


def ignore(job_id: str, problem: str) -> None:
    """Ignore a complaint."""


def parse_answer(answer: bytes, job_id: str, clock: Clockface, complain: Complain = ignore) -> list[JobRecord]:
    """Return the records of a job that was read alone, by the answer to `show job <id>`; the id may be that of an array task.

    It begins with a record of that job, or of its array; line breaks after that belong to a text of its owner, or begin
    another record of the same array.
    """
    records: list[JobRecord] = []
    text = decode(answer).strip("\n")
    number = int(job_id.partition("_")[0])
    submit = f" SubmitTime={clock.token}"
    begin = 0
    while (at := text.find(submit, begin)) >= 0:
        following = text.find(submit, at + 1)
        end = text.find("\nJobId=", at, following) if following >= 0 else len(text)
        if end < 0:
            break
        try:
            record = parse_job(text[begin:end].strip("\n"), clock)
        except SlurmReplyError as error:
            complain(job_id, str(error))
            break
        if record.raw_id == number or any(job.array_job_id == number for job in record.jobs):
            records.append(record)
        begin = end
    return records


def _number(key: bytes) -> int:
    """Return the id on a line; -1 when it is none, such as the thousands of digits that a user may have written."""
    return int(key) if key.isdigit() and len(key) <= _MOST_DIGITS else -1


_NOTHING = _Entry(b"", JobRecord(0, (), False, False, False, ""))
_NO_RECORD = (b"", _NOTHING)
