"""What must survive a restart, in one SQLite file: originals, pins, refusals, steps under way, preemptions, decisions, past runs.

The journal is written before Slurm is asked (an intent) and after (its outcome), so that a controller that was killed in
between finds, at its next start, every step whose end it does not know. The picture of the cluster is never read from
here: Slurm has it. One process writes; others may read.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from controller.errors import JournalError
from controller.ledger import Estimate, Ledger, PinRecord, Refusal, Served
from controller.preemption_table import (
    PREEMPTION_SCHEMA,
    PreemptionTable,
    elsewhere_from_json,
    elsewhere_to_json,
    prune_preemptions,
)
from controller.slurm.client import Failures, JobKey, ResourceRequest

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL,
    original TEXT, pin TEXT, refusal TEXT, served TEXT, yielded INTEGER, elsewhere TEXT,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS intent (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, verb TEXT NOT NULL, job_id TEXT NOT NULL,
    submit_time_s INTEGER NOT NULL, detail TEXT NOT NULL, done_time_s REAL, outcome TEXT);
CREATE INDEX IF NOT EXISTS intent_open ON intent (done_time_s) WHERE done_time_s IS NULL;
CREATE TABLE IF NOT EXISTS decision (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    policy TEXT NOT NULL, latency_s REAL NOT NULL, problem TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS placed (
    decision INTEGER NOT NULL REFERENCES decision (id) ON DELETE CASCADE,
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, placement TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS placed_job ON placed (job_id, submit_time_s);
CREATE INDEX IF NOT EXISTS placed_decision ON placed (decision);
CREATE TABLE IF NOT EXISTS run (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,
    start_time_s REAL, end_time_s REAL NOT NULL, service_s REAL NOT NULL, num_gpus INTEGER NOT NULL,
    num_nodes INTEGER NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_name ON run (user, name, end_time_s);
"""
_FROM_1 = "ALTER TABLE job ADD COLUMN elsewhere TEXT"
"""What `_SCHEMA` does not add to a file of version 1 by itself."""
_JOB_COLUMNS = "job_id, submit_time_s, original, pin, refusal, served, yielded, elsewhere"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One job that ended."""

    key: JobKey
    user: str
    name: str
    start_time_s: float | None
    end_time_s: float
    service_s: float
    num_gpus: int
    num_nodes: int
    state: str
    """Slurm's word: COMPLETED, FAILED, TIMEOUT, CANCELLED, ..."""


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One decision, as recorded."""

    time_s: float
    sequence: int
    digest: str
    policy: str
    latency_s: float
    problem: str
    """Why the fallback decided in the policy's place; empty when it did not."""


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """What one decision said of one job."""

    decision: DecisionEntry
    placement: str
    """"n1:8,n2:4"."""
    reason: str


@dataclass(frozen=True, slots=True)
class Intent:
    """A step that was begun; `outcome` is None while its end is not known."""

    number: int
    time_s: float
    verb: str
    key: JobKey
    detail: str
    outcome: str | None


class Journal:
    """The one writer. Invariant: when a method returns, what it was told is in the file, whole, or it has raised."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it (mode 0600 in a folder of mode 0700). Raises JournalError that says what to mend."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from error
        try:
            self._prepare(path)
        except JournalError:
            self._db.close()
            raise
        except sqlite3.Error as error:
            self._db.close()
            raise _unusable(path, error) from error

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in {0, 1, SCHEMA_VERSION}:
            raise JournalError(
                f"{path}: written by another version of Headway (schema {version}, this one reads {SCHEMA_VERSION}); "
                "install that version, or move the file away"
            )
        if version != SCHEMA_VERSION:
            self._make(version)
        self.preemptions = PreemptionTable(self._db, self._transaction)

    def _make(self, version: int) -> None:
        """All tables, in a new file or in one of an earlier version; all of it, or nothing."""
        with self._transaction() as db:
            if version == 1:
                db.execute(_FROM_1)
            for statement in (_SCHEMA + PREEMPTION_SCHEMA).split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def close(self) -> None:
        """Write everything back into the one file."""
        self._db.close()

    # --- what is known of jobs

    def load_ledger(self) -> Ledger:
        """The ledger as of the last write."""
        ledger = Ledger()
        rows = self._db.execute(f"SELECT {_JOB_COLUMNS} FROM job")  # noqa: S608
        for job_id, submit_time_s, original, pin, refusal, served, yielded, elsewhere in rows:
            key = JobKey(job_id, submit_time_s)
            if original:
                ledger.originals[key] = request_from_json(original)
            if pin:
                values = json.loads(pin)
                ledger.pins[key] = PinRecord(
                    **{**values, "nodes": tuple(values["nodes"]), "gpus": tuple(values["gpus"])}
                )
            if refusal:
                ledger.refusals[key] = Refusal(**json.loads(refusal))
            if served:
                ledger.served[key] = Served(**json.loads(served))
            if yielded is not None:
                ledger.yielded[key] = yielded
            if elsewhere:
                ledger.elsewhere[key] = elsewhere_from_json(elsewhere)
        return ledger

    def save_jobs(self, ledger: Ledger, keys: Iterable[JobKey]) -> None:
        """Write what the ledger says of these jobs; a job that it says nothing of is dropped."""
        with self._transaction() as db:
            for key in keys:
                facts = _facts(ledger, key)
                if all(value is None for value in facts):
                    db.execute(
                        "DELETE FROM job WHERE job_id = ? AND submit_time_s = ?", (key.job_id, key.submit_time_s)
                    )
                else:
                    db.execute(
                        f"INSERT OR REPLACE INTO job ({_JOB_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                        (key.job_id, key.submit_time_s, *facts),
                    )

    # --- steps under way

    def begin(self, verb: str, details: Mapping[JobKey, str], time_s: float) -> list[int]:
        """Record that this is about to be asked of Slurm. Returns the numbers for `finish`, in the order of `details`."""
        numbers = []
        with self._transaction() as db:
            for key, detail in details.items():
                cursor = db.execute(
                    "INSERT INTO intent (time_s, verb, job_id, submit_time_s, detail) VALUES (?, ?, ?, ?, ?)",
                    (time_s, verb, key.job_id, key.submit_time_s, detail),
                )
                numbers.append(int(cursor.lastrowid or 0))
        return numbers

    def finish(self, numbers: Sequence[int], keys: Iterable[JobKey], failures: Failures, time_s: float) -> None:
        """Record how the steps ended."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE intent SET done_time_s = ?, outcome = ? WHERE id = ?",
                [
                    (time_s, failures[key].message if key in failures else "done", number)
                    for number, key in zip(numbers, keys, strict=True)
                ],
            )

    def open_intents(self) -> list[Intent]:
        """Steps whose end is not known."""
        return self._intents("WHERE done_time_s IS NULL ORDER BY id", ())

    def intents_of(self, key: JobKey, limit: int = 50) -> list[Intent]:
        """The newest steps of one job, newest first."""
        return self._intents(
            "WHERE job_id = ? AND submit_time_s = ? ORDER BY id DESC LIMIT ?", (key.job_id, key.submit_time_s, limit)
        )

    def _intents(self, where: str, values: tuple[object, ...]) -> list[Intent]:
        rows = self._db.execute(
            f"SELECT id, time_s, verb, job_id, submit_time_s, detail, outcome FROM intent {where}",  # noqa: S608
            values,
        )
        return [
            Intent(number, time_s, verb, JobKey(job_id, submit_time_s), detail, outcome)
            for number, time_s, verb, job_id, submit_time_s, detail, outcome in rows
        ]

    def settle(self, number: int, outcome: str, time_s: float) -> None:
        """Record what was found of a step that a killed controller left open."""
        self._db.execute("UPDATE intent SET done_time_s = ?, outcome = ? WHERE id = ?", (time_s, outcome, number))

    # --- decisions

    def record_decision(self, entry: DecisionEntry, placed: Sequence[tuple[JobKey, str, str]]) -> None:
        """Keep one decision, with (job, placement, reason) of what it placed."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO decision (time_s, sequence, digest, policy, latency_s, problem) VALUES (?, ?, ?, ?, ?, ?)",
                (entry.time_s, entry.sequence, entry.digest, entry.policy, entry.latency_s, entry.problem),
            )
            db.executemany(
                "INSERT INTO placed VALUES (?, ?, ?, ?, ?)",
                [(cursor.lastrowid, key.job_id, key.submit_time_s, where, why) for key, where, why in placed],
            )

    def decisions_of(self, key: JobKey, limit: int = 20) -> list[PlacedEntry]:
        """What was decided for a job, newest first."""
        rows = self._db.execute(
            "SELECT time_s, sequence, digest, policy, latency_s, problem, placement, reason"
            " FROM placed JOIN decision ON decision.id = placed.decision"
            " WHERE job_id = ? AND submit_time_s = ? ORDER BY decision.id DESC LIMIT ?",
            (key.job_id, key.submit_time_s, limit),
        )
        return [PlacedEntry(DecisionEntry(*row[:6]), row[6], row[7]) for row in rows]

    # --- past runs

    def record_runs(self, runs: Iterable[RunRecord]) -> None:
        """Keep how jobs ended; a job told twice is kept once."""
        with self._transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        run.key.job_id, run.key.submit_time_s, run.user, run.name, run.start_time_s, run.end_time_s,
                        run.service_s, run.num_gpus, run.num_nodes, run.state,
                    )
                    for run in runs
                ],
            )  # fmt: skip

    def last_run(self, job_id: str) -> RunRecord | None:
        """The newest ended job of that id, as users name it."""
        row = self._db.execute(
            "SELECT * FROM run WHERE job_id = ? ORDER BY submit_time_s DESC LIMIT 1", (job_id,)
        ).fetchone()
        return None if row is None else RunRecord(JobKey(row[0], row[1]), *row[2:])

    def estimates(
        self, runs: int, min_runs: int, of: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Estimate]:
        """Mean and standard deviation of the last `runs` completed runs of (user, name), where there are at least `min_runs`.

        `of` None: of every (user, name) that ever ran.
        """
        if of is None:
            of = self._db.execute("SELECT DISTINCT user, name FROM run").fetchall()
        found = {}
        for user, name in of:
            rows = self._db.execute(
                "SELECT service_s FROM run WHERE user = ? AND name = ? AND state = 'COMPLETED'"
                " ORDER BY end_time_s DESC LIMIT ?",
                (user, name, runs),
            )
            times_s = [service_s for (service_s,) in rows]
            if len(times_s) >= min_runs:
                found[user, name] = Estimate(fmean(times_s), stdev(times_s) if len(times_s) > 1 else 0.0, len(times_s))
        return found

    # --- retention

    def prune(self, keep_decisions: int, older_than_s: float) -> None:
        """Drop all but the newest decisions, and ended steps, preemptions and runs from before that time."""
        with self._transaction() as db:
            db.execute("DELETE FROM decision WHERE id <= (SELECT MAX(id) FROM decision) - ?", (keep_decisions,))
            db.execute("DELETE FROM intent WHERE done_time_s < ?", (older_than_s,))
            db.execute("DELETE FROM run WHERE end_time_s < ?", (older_than_s,))
            prune_preemptions(db, older_than_s)

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


class _Transaction:
    """One atomic write; sqlite errors come out as JournalError."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise JournalError(f"the journal cannot be written: {error}") from error
        return self._db

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
                return
        except sqlite3.Error as failure:
            error = failure
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise JournalError(f"the journal cannot be written: {error}; is the disk full?") from error


def _unusable(path: Path, error: Exception) -> JournalError:
    return JournalError(
        f"{path}: the journal cannot be opened: {error}; check owner, mode and free space of the folder, "
        "or move a damaged file away (running jobs are not affected)"
    )


def _facts(ledger: Ledger, key: JobKey) -> tuple[str | int | None, ...]:
    original, pin = ledger.originals.get(key), ledger.pins.get(key)
    refusal, served = ledger.refusals.get(key), ledger.served.get(key)
    elsewhere = ledger.elsewhere.get(key)
    return (
        request_to_json(original) if original else None,
        json.dumps(asdict(pin)) if pin else None,
        json.dumps(asdict(refusal)) if refusal else None,
        json.dumps(asdict(served)) if served else None,
        ledger.yielded.get(key),
        elsewhere_to_json(elsewhere) if elsewhere else None,
    )


def request_to_json(request: ResourceRequest) -> str:
    """A request as text; `request_from_json` is its inverse."""
    return json.dumps(asdict(request))


def request_from_json(text: str) -> ResourceRequest:
    """A request from text that `request_to_json` made."""
    values = json.loads(text)
    return ResourceRequest(
        **{
            **values,
            "required_nodes": tuple(values["required_nodes"]),
            "excluded_nodes": tuple(values["excluded_nodes"]),
        }
    )


def read_originals(path: Path) -> dict[JobKey, ResourceRequest]:
    """Requests of jobs that Headway has pinned, read by another process (the watchdog); empty when there is no journal."""
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as db:
            rows = db.execute("SELECT job_id, submit_time_s, original FROM job WHERE original IS NOT NULL")
            return {JobKey(job_id, submit): request_from_json(original) for job_id, submit, original in rows}
    except sqlite3.Error as error:
        raise JournalError(f"{path}: cannot be read: {error}") from error
