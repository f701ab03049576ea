"""Drops from a long answer of scontrol the jobs that the watchdog has nothing to do with, while the answer is read.

The watchdog must work with a queue of any size, when the controller no longer does, and whatever users have written into their
jobs. So it keeps only the records of jobs that have a mark of ours, and of the others as much as `JobTable` needs in order to tell
records from users' texts. Not more than `most_bytes` of marked jobs are kept: those behind them come with a later check, when these
have been released and have no mark.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from controller.base.errors import SlurmReplyError
from controller.slurm.client import HOLD_MARK, PIN_MARK
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.incremental import decode
from controller.slurm.scontrol.parse import parse_job

log = structlog.get_logger(__name__)

_RECORD = b"JobId="
_MOST_MARKED_BYTES = 1 << 26
"""About 40,000 jobs: more than the watchdog releases within one check."""
_MOST_LINE_BYTES = 1 << 20
"""A line that is longer is passed on in pieces: no record of a job is so long."""
_MOST_TEXT_BYTES = 256
"""Begin that is kept of a line among the jobs that is no record: more than the lines between scontrol's answers have."""


class MarkedJobs:
    """A sieve for one answer. Invariant: every record of a job that has a mark of ours in its own place is passed on, until that
    makes `most_bytes`; and with each line that is no record the lines around it, of which only id and submit time are kept. Lines
    behind the jobs are passed on.
    """

    def __init__(self, clock: Clockface, most_bytes: int = _MOST_MARKED_BYTES) -> None:
        self._clock = clock
        self._submit = f" SubmitTime={clock.token}".encode()
        self._left_bytes = most_bytes
        self._rest = b""
        """Begin of a line whose end has not come."""
        self._before = b""
        """The last record, if it was not passed on: needed if the next line is no record."""
        self._keep_next = False
        """True behind a line that is no record."""
        self._in_doubt = False
        """True if that line may be a part of a record."""
        self._among_jobs = True
        """A user's text may look like the end of the jobs: then more is kept than needed."""
        self.left_out = 0
        """Records of marked jobs that were not passed on, because there were too many."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what is to be kept of everything up to the end of the chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        kept = [piece for line in lines for piece in self._pieces(line + b"\n")]
        if len(self._rest) > _MOST_LINE_BYTES:
            kept += self._pieces(self._rest)
            self._rest = b""
        return b"".join(kept)

    def end(self) -> bytes:
        """Return what is to be kept of the last line."""
        if self.left_out:
            log.warning("jobs_left_for_the_next_check", count=self.left_out)
        rest, self._rest = self._rest, b""
        return b"".join(self._pieces(rest)) if rest else b""

    def _pieces(self, line: bytes) -> Iterator[bytes]:
        before, self._before = self._before, b""
        if not line.startswith(_RECORD) or line.count(self._submit) != 1:
            if before:
                yield before if line.startswith(_END) else self._outline(before)
            yield self._text(line)
            self._keep_next, self._in_doubt = True, not line.startswith(_END)
        elif self._keep_next:
            yield self._outline(line) if self._in_doubt else line
            self._keep_next = False
        elif not self._is_ours(line):
            self._before = line
        elif self._left_bytes > 0:
            self._left_bytes -= len(line)
            yield line
        else:
            self.left_out += 1
            self._before = line

    def _text(self, line: bytes) -> bytes:
        """Return what is needed of a line that is no record: its begin, and whether it has a submit time."""
        self._among_jobs = self._among_jobs and not line.startswith(_BEHIND_JOBS)
        if not self._among_jobs or len(line) <= _MOST_TEXT_BYTES:
            return line
        return line[:_MOST_TEXT_BYTES] + self._submit * min(line.count(self._submit), 2) + b"\n"

    def _outline(self, line: bytes) -> bytes:
        """Return id and submit time of a record that is in doubt, and so is read by its id."""
        return line[: line.find(b" ")] + self._submit + b"\n"

    def _is_ours(self, line: bytes) -> bool:
        if _HOLD not in line and not (_PIN in line and _HELD in line):
            return False
        try:
            jobs = parse_job(decode(line.rstrip(b"\n")), self._clock).jobs
        except SlurmReplyError:
            return True  # `JobTable` finds that too, and has it read by its id
        return any(job.marks or job.has_pin_mark for job in jobs)


_END = b"end"
"""Begin of the lines between scontrol's answers, which put nothing in doubt."""
_BEHIND_JOBS = b"NodeName="
_HOLD = HOLD_MARK.encode()
_PIN = PIN_MARK.encode()
_HELD = b" Priority=0 "
