"""The journal's table of notes on jobs: why each has waited, and how many steps it has made; for `headway report`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.slurm.model.job import JobKey
from controller.state.journal_rows import encode_key, lenient_key
from controller.state.journal_schema import MAX_JOB_NOTES
from controller.state.preemption_table import Read, Writing
from controller.state.typed_rows import well_typed
from policies.documents import DocumentError, is_number, parse_json

_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class JobNote:
    """Note on one job since it was submitted, or requeued, last."""

    key: JobKey
    time_s: float
    """Time of the note, Unix time."""
    waits_s: Mapping[str, float]
    """Time that it has waited by reason, in seconds."""
    steps: int | None
    """Steps of all its runs so far; None: not known."""


class JobNoteTable:
    """One row for each job and submit time; a later note replaces an earlier one."""

    def __init__(self, read: Read, writing: Writing) -> None:
        self._read = read
        self._writing = writing

    def save(self, notes: Iterable[JobNote]) -> None:
        """Write notes. Raises JournalError."""
        rows = [(*encode_key(note.key), note.time_s, json.dumps(dict(note.waits_s)), note.steps) for note in notes]
        if rows:
            with self._writing() as db:
                db.executemany("INSERT OR REPLACE INTO job_note VALUES (?, ?, ?, ?, ?)", rows)

    def find(self, key: JobKey) -> JobNote | None:
        """Return the note on a job; None when there is none. Raises JournalError."""
        return next((note for note in self._notes("submit_time_s = ?", (encode_key(key)[0], key.submit_time_s))), None)

    def of_job(self, job_id: str, since_s: float) -> list[JobNote]:
        """Return the notes on jobs of that id that were made since then, oldest first. Raises JournalError."""
        return self._notes("time_s >= ?", (job_id, since_s))[::-1]

    def _notes(self, where: str, values: tuple[str, float]) -> list[JobNote]:
        rows = self._read(
            f"SELECT job_id, submit_time_s, time_s, waits, steps FROM job_note WHERE job_id = ? AND {where}"  # noqa: S608
            " ORDER BY submit_time_s DESC LIMIT ?",
            (*values, _MOST_ROWS),
        )
        return [
            JobNote(lenient_key(job_id, submit_time_s), time_s, _waits(waits), steps)
            for job_id, submit_time_s, time_s, waits, steps in well_typed(
                rows, "text", "number", "number", "text", "number?"
            )
        ]


def _waits(text: str) -> dict[str, float]:
    """Return the times by reason; none where the row is damaged."""
    try:
        found = parse_json(text)
    except DocumentError:
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {why: float(time_s) for why, time_s in pairs if is_number(time_s, 0.0)}


def prune_job_notes(db: sqlite3.Connection, older_than_s: float) -> None:
    """Drop the notes that were made before that time, and those beyond the maximum number."""
    beyond = "SELECT time_s FROM job_note ORDER BY time_s DESC LIMIT 1 OFFSET ?"
    db.execute(
        f"DELETE FROM job_note WHERE time_s < MAX(?, IFNULL(({beyond}), 0))",  # noqa: S608 - words of our own
        (older_than_s, MAX_JOB_NOTES - 1),
    )
