"""The journal's table of preemptions: one row each, rewritten at every change of its stage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Protocol

import structlog

from controller.state.journal_rows import RowError, decode_preemption, encode_constraint, encode_key, lenient_key
from controller.state.preemption import Preemption

log = structlog.get_logger(__name__)

PREEMPTION_SCHEMA = """
-- Bound: MAX_PREEMPTIONS and keep_days, and one open for each job.
CREATE TABLE IF NOT EXISTS preemption (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, raw_id INTEGER NOT NULL,
    submit_time_s INTEGER NOT NULL, restarts INTEGER NOT NULL, cause TEXT NOT NULL, why TEXT NOT NULL, way TEXT NOT NULL,
    force INTEGER NOT NULL, nodes TEXT NOT NULL, elsewhere TEXT NOT NULL, within_s REAL NOT NULL, stage TEXT NOT NULL,
    asked_s REAL NOT NULL, saved_s REAL, stopped_s REAL, started_s REAL, resumed_s REAL, ended_s REAL, step INTEGER,
    attempt INTEGER NOT NULL, problem TEXT NOT NULL, reason TEXT);
CREATE INDEX IF NOT EXISTS preemption_open ON preemption (number) WHERE ended_s IS NULL;
CREATE INDEX IF NOT EXISTS preemption_job ON preemption (raw_id, number);
CREATE INDEX IF NOT EXISTS preemption_asked ON preemption (asked_s);
"""
_COLUMN = {"constraint": "elsewhere"}
"""Column of each field that has another name; files keep the names with which they were made."""
_COLUMNS = tuple(_COLUMN.get(field.name, field.name) for field in fields(Preemption) if field.name != "cluster")
"""The cluster is part of the column `job_id`, as in all tables."""
REASON_SINCE_4 = (
    "ALTER TABLE preemption ADD COLUMN reason TEXT",
    "UPDATE preemption SET reason = 'not needed' WHERE stage = 'called off'"
    " AND problem = 'the job for which it was to be stopped no longer waits'",
)
"""Adds the column `reason`. Earlier versions knew the reason by that sentence; files have it as it was then."""
MAX_PREEMPTIONS = 100_000
"""Maximum number of rows of ended preemptions; the oldest are dropped, whatever their age."""
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM preemption"  # noqa: S608 - names of our own

_USER = (
    "SELECT user FROM run WHERE run.job_id = preemption.job_id AND run.submit_time_s >= preemption.submit_time_s"
    " ORDER BY run.submit_time_s LIMIT 1"
)
"""User of the job that was preempted: its record has the submit time of its last run, and Slurm may have issued the id again."""
_JOBS = (
    f"SELECT number, job_id, submit_time_s, ({_USER}) FROM preemption"  # noqa: S608 - names of our own
    " WHERE number < ? ORDER BY number DESC LIMIT ?"
)

_MOST_NUMBER = 2**63
_NAMED = 20
"""Maximum number of damaged rows that the log reports one by one."""


@dataclass(frozen=True, slots=True)
class PreemptedJob:
    """The job of one preemption."""

    number: int
    job_id: str
    submit_time_s: int
    """Its submit time then: at its submission, or at a requeue."""
    user: str
    """Its user, as the journal has the job's end; empty: it has not ended, or the record is too old."""


class Read(Protocol):
    """Reads rows."""

    def __call__(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows. Raises JournalError."""


class Writing(Protocol):
    """Begins writes."""

    def __call__(self, *, durable: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Begin an atomic write. Raises JournalError."""


class PreemptionTable:
    """Rows by number. Invariant: a number is given once, and never again after its row was dropped."""

    def __init__(self, read: Read, writing: Writing) -> None:
        self._read_rows = read
        self._writing = writing
        self._open: dict[int, Preemption] = {}
        """Open preemptions, as they were last written. Bound: one for each job."""
        self._logged: set[int] = set()
        """Rows that were logged. Bound: `_NAMED`, and one."""

    def add(self, preemption: Preemption) -> Preemption:
        """Store a new preemption. Returns it with its number; the number that it came with does not count."""
        with self._writing(durable=True) as db:
            cursor = db.execute(_insert(_COLUMNS[1:]), _values(preemption)[1:])
        kept = replace(preemption, number=int(cursor.lastrowid or 0))
        self._open[kept.number] = kept
        return kept

    def save(self, preemption: Preemption) -> None:
        """Write a preemption, even if its row is missing: damage may have removed it."""
        with self._writing(durable=True) as db:
            db.execute(_insert(_COLUMNS, "OR REPLACE "), _values(preemption))
        self._open[preemption.number] = preemption
        if not preemption.open:
            del self._open[preemption.number]

    def write_again(self) -> None:
        """Write the open preemptions into a file that has replaced another."""
        if self._open:
            with self._writing(durable=True) as db:
                db.executemany(_insert(_COLUMNS, "OR REPLACE "), [_values(row) for row in self._open.values()])

    def open(self) -> list[Preemption]:
        """Return the open preemptions, oldest first."""
        found = self._read("WHERE ended_s IS NULL ORDER BY number", ())
        self._open = {row.number: row for row in found}
        return found

    def find(self, number: int) -> Preemption | None:
        """Return the preemption of that number; None when there is none."""
        if not 0 < number < _MOST_NUMBER:  # SQLite cannot store such a number
            return None
        return next(iter(self._read("WHERE number = ?", (number,))), None)

    def of_job(self, raw_id: int, limit: int) -> list[Preemption]:
        """Return the newest preemptions of one job, newest first."""
        return self._read("WHERE raw_id = ? ORDER BY number DESC LIMIT ?", (raw_id, limit))

    def jobs(self, before: int, limit: int) -> list[PreemptedJob]:
        """Return the jobs of preemptions with numbers below `before`, the newest first.

        This takes a tenth of the time that whole rows take.
        """
        rows = self._read_rows(_JOBS, (min(before, _MOST_NUMBER - 1), limit))
        return [
            PreemptedJob(
                number,
                lenient_key(str(job_id), 0).job_id,
                submit_s if isinstance(submit_s, int) else 0,
                user if isinstance(user, str) else "",
            )
            for number, job_id, submit_s, user in rows
        ]

    def numbered(self, numbers: Sequence[int]) -> list[Preemption]:
        """Return the preemptions of these numbers, newest first."""
        marks = ", ".join("?" * len(numbers))
        return self._read(f"WHERE number IN ({marks}) ORDER BY number DESC", tuple(numbers))

    def newest(self, limit: int) -> list[Preemption]:
        """Return the newest preemptions of all jobs, newest first."""
        return self._read("ORDER BY number DESC LIMIT ?", (limit,))

    def since(self, time_s: float) -> list[Preemption]:
        """Return the preemptions that were begun since then, oldest first."""
        return self._read("WHERE asked_s >= ? ORDER BY number", (time_s,))

    def _read(self, where: str, values: tuple[object, ...]) -> list[Preemption]:
        found = []
        for row in self._read_rows(f"{_SELECT} {where}", values):
            try:
                found.append(_decode(row))
            except RowError as error:  # it stays in the file
                self._log_once(row[0], row[1], error)
        return found

    def _log_once(self, number: object, job_id: object, error: Exception) -> None:
        """Log a row that cannot be decoded, once."""
        if isinstance(number, int) and number not in self._logged and len(self._logged) <= _NAMED:
            self._logged.add(number)
            log.error("journal_row_not_understood", column="preemption", job=str(job_id)[:24], problem=str(error))


@lru_cache(maxsize=4096)
def _decode(row: tuple[object, ...]) -> Preemption:
    """Return the preemption of a row. Each cycle reads the same rows, and hardly any of them has changed. Raises RowError."""
    return decode_preemption(dict(zip(_COLUMNS, row, strict=True)))


def prune_preemptions(db: sqlite3.Connection, older_than_s: float) -> None:
    """Drop the preemptions that ended before that time, and those beyond the maximum number."""
    db.execute("DELETE FROM preemption WHERE ended_s < ?", (older_than_s,))
    newest = "(SELECT MAX(number) FROM preemption)"
    db.execute(
        f"DELETE FROM preemption WHERE ended_s IS NOT NULL AND number <= {newest} - ?",  # noqa: S608
        (MAX_PREEMPTIONS,),
    )


def _insert(columns: Sequence[str], instead: str = "") -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT {instead}INTO preemption ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - names of our own


def _values(preemption: Preemption) -> tuple[object, ...]:
    written = {
        "job_id": encode_key(preemption.key)[0],
        "nodes": json.dumps(preemption.nodes),
        "elsewhere": encode_constraint(preemption.constraint),
    }
    return tuple(written[name] if name in written else getattr(preemption, name) for name in _COLUMNS)
