"""Drops from a long answer of scontrol the jobs that the watchdog has nothing to do with, while the answer is read.

The watchdog must work with a queue of any size, when the controller no longer does. So it keeps only the lines of jobs that have a
mark of ours, and those that `JobTable` needs in order to tell records from users' texts. Not more than `most_bytes` of marked jobs
are kept: those behind them come with a later check, when these have been released and have no mark.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from controller.slurm.client import HOLD_MARK, PIN_MARK
from controller.slurm.scontrol.clockface import Clockface

log = structlog.get_logger(__name__)

_RECORD = b"JobId="
_MOST_MARKED_BYTES = 1 << 26
"""About 40,000 jobs: more than the watchdog releases within one check."""
_MOST_LINE_BYTES = 1 << 20
"""A line that is longer is passed on in pieces: no record of a job is so long."""


class MarkedJobs:
    """A sieve for one answer. Invariant: every record that may show a job of the watchdog's is passed on, until that makes
    `most_bytes`; and with each line that is no record both its neighbours. A mark may stand in a user's text: then that job is
    passed on too.
    """

    def __init__(self, clock: Clockface, most_bytes: int = _MOST_MARKED_BYTES) -> None:
        self._submit = f" SubmitTime={clock.token}".encode()
        self._left_bytes = most_bytes
        self._rest = b""
        """Begin of a line whose end has not come."""
        self._before = b""
        """The last record, if it was not passed on: needed if the next line is no record."""
        self._keep_next = False
        self.left_out = 0
        """Marked records that were not passed on, because there were too many."""

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
            yield before
            yield line
            self._keep_next = True
        elif self._keep_next:
            yield line
            self._keep_next = False
        elif _may_be_ours(line):
            if self._left_bytes > 0:
                self._left_bytes -= len(line)
                yield line
            else:
                self.left_out += 1
                self._before = line
        else:
            self._before = line


_HOLD = HOLD_MARK.encode()
_PIN = PIN_MARK.encode()
_HELD = b" Priority=0 "


def _may_be_ours(line: bytes) -> bool:
    return _HOLD in line or (_PIN in line and _HELD in line)
