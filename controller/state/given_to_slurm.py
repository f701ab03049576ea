"""Jobs that Headway gave to Slurm to place, and why: read from the journal's steps.

A release of a job that Headway has placed has no detail. A release of a job that Slurm shall place has the reason as its detail.
Only the newest release of a submission counts. The order is that of the rows: clocks may be set back.

Bound: after `prune_intents` one reason at most is left for each submission in the tables `job` (jobs that Slurm knows) and `run`
(`keep_days`, at most `MAX_RUNS`). These rows come on top of the `MAX_INTENTS` newest steps.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from controller.slurm.model.job import JobKey
from controller.state.journal_rows import encode_key
from controller.state.preemption_table import Read
from controller.state.typed_rows import well_typed

GIVEN_TO_SLURM_SCHEMA = """
CREATE INDEX IF NOT EXISTS intent_release ON intent (job_id, submit_time_s)
    WHERE verb = 'release' AND (outcome IS NULL OR outcome = 'done');
"""
"""Index of the releases that count, so that a job with thousands of refused ones costs no more than another."""
_MOST_ROWS = 50
_HAPPENED = "{0}.verb = 'release' AND ({0}.outcome IS NULL OR {0}.outcome = 'done')"
_IS_OVER = (
    "EXISTS (SELECT 1 FROM intent AS later WHERE later.job_id = intent.job_id"  # noqa: S608 - words of our own
    f" AND later.submit_time_s = intent.submit_time_s AND later.id > intent.id AND {_HAPPENED.format('later')})"
)
_IS_GIVEN = f"{_HAPPENED.format('intent')} AND intent.detail != '' AND NOT {_IS_OVER}"


@dataclass(frozen=True, slots=True)
class GivenToSlurm:
    """One release of a job for Slurm to place."""

    time_s: float
    """Time of the release, Unix time."""
    why: str


class GivenToSlurmReader:
    """Releases of jobs for Slurm to place. They stay as long as Slurm knows the job, or the journal has the record of its end."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def last(self, key: JobKey) -> GivenToSlurm | None:
        """Return that of this job; None: Headway did not give it to Slurm, or placed it later. Raises JournalError."""
        return next(iter(self._rows("submit_time_s = ?", encode_key(key))), None)

    def of_id(self, job_id: str, since_s: float) -> list[GivenToSlurm]:
        """Return those since then of jobs of that id, one at most for each submit time; oldest first. Raises JournalError."""
        return self._rows("time_s >= ?", (job_id, since_s))[::-1]

    def _rows(self, where: str, values: tuple[str, float]) -> list[GivenToSlurm]:
        rows = self._read(
            f"SELECT time_s, detail FROM intent WHERE job_id = ? AND {where} AND {_IS_GIVEN}"  # noqa: S608 - words of our own
            " ORDER BY id DESC LIMIT ?",
            (*values, _MOST_ROWS),
        )
        return [GivenToSlurm(float(time_s), why) for time_s, why in well_typed(rows, "number", "text")]


def prune_intents(db: sqlite3.Connection, older_than_s: float, most: int) -> None:
    """Drop the steps that ended before that time, and those beyond the maximum number; never the reason why Slurm places a job
    that is still known. A reason goes before the later release that ends it, so that it never counts again.

    Call it after the records of ended jobs were pruned.
    """
    known = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} AS known WHERE known.job_id = intent.job_id"  # noqa: S608 - words of our own
        " AND known.submit_time_s = intent.submit_time_s)"
        for table in ("job", "run")
    )
    # Only releases that count: among thousands that Slurm refused, each would look for a later one that it did not refuse.
    happened = _HAPPENED.format("intent")
    db.execute(f"DELETE FROM intent WHERE {happened} AND detail != '' AND {_IS_OVER}")  # noqa: S608 - words of our own
    db.execute(
        "DELETE FROM intent WHERE (done_time_s < ? OR id <= (SELECT MAX(id) FROM intent) - ?)"  # noqa: S608
        f" AND NOT ({_IS_GIVEN} AND ({known}))",
        (older_than_s, most),
    )
