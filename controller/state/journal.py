"""The journal: everything that must survive a restart, in one SQLite file.

It contains users' own requests, pins, refusals, open steps, preemptions, decisions and past runs. Each change of a job in Slurm is
recorded before (an intent) and after (its outcome), so that a killed controller finds every step whose end it does not know. The
state of the cluster is never read from here, only from Slurm. One process writes; others may read.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import structlog

from controller.base.apart import apart
from controller.slurm.client import Failures
from controller.slurm.model.job import JobKey
from controller.state.given_to_slurm import GivenToSlurmReader, prune_intents
from controller.state.job_note_table import JobNoteTable, prune_job_notes
from controller.state.journal_file import JournalFile
from controller.state.journal_rows import (
    RowError,
    decode_constraint,
    decode_key,
    decode_pin,
    decode_refusal,
    decode_request,
    decode_served,
    encode,
    encode_constraint,
    encode_key,
    lenient_key,
    whole_number,
)
from controller.state.journal_salvage import read_originals
from controller.state.journal_schema import MAX_INTENTS, MAX_RUNS, UNSURE
from controller.state.ledger import Estimate, Ledger
from controller.state.preemption_table import PreemptionTable, prune_preemptions
from controller.state.typed_rows import well_typed
from controller.state.user_change_table import UserChangeTable

__all__ = ["DecisionEntry", "Intent", "Journal", "PlacedEntry", "RunRecord", "read_originals"]

log = structlog.get_logger(__name__)

_DECODERS: dict[str, Callable[[object], Any]] = {
    "original": decode_request,
    "pin": decode_pin,
    "refusal": decode_refusal,
    "served": decode_served,
    "yielded": whole_number,
    "elsewhere": decode_constraint,
}
"""Columns of a job; each is a dictionary of the ledger."""
_ENCODERS: dict[str, Callable[[Any], str | int]] = {
    "original": encode, "pin": encode, "refusal": encode, "served": encode, "yielded": int, "elsewhere": encode_constraint,
}  # fmt: skip
_JOB_COLUMNS = ", ".join(("job_id", "submit_time_s", *_DECODERS))
_RUN_COLUMNS = (
    "job_id, submit_time_s, user, name, start_time_s, end_time_s, service_s, num_gpus, num_nodes, state, gpu_s"
)
_PLACED = (
    "SELECT time_s, sequence, digest, policy, latency_s, problem, placement, reason"
    " FROM placed JOIN decision ON decision.id = placed.decision"
)
_NAMED = 20
"""Maximum number of damaged rows that the log reports one by one."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The end of one job."""

    key: JobKey
    user: str
    name: str
    start_time_s: float | None
    end_time_s: float
    service_s: float
    """Run time of all its runs, seconds."""
    num_gpus: int
    """GPUs of its last run; 0: not known, or it was cancelled in the queue."""
    num_nodes: int
    state: str
    """Slurm's state: COMPLETED, FAILED, TIMEOUT, CANCELLED, ..."""
    gpu_s: float | None = None
    """Run time of each run times its GPUs, seconds, as far as these are known; None: of no run, as in rows of earlier versions."""


def require_storable(run: RunRecord) -> None:
    """Raise ValueError or OverflowError if a value of the record cannot be stored: all records of a cycle are stored together."""
    for text in (run.key.job_id, run.user, run.name, run.state):
        text.encode()
    for number in (run.key.submit_time_s, run.num_gpus, run.num_nodes):
        number.to_bytes(8, "big", signed=True)
    for seconds in (run.start_time_s, run.end_time_s, run.service_s, run.gpu_s):
        if seconds is not None and not math.isfinite(seconds):
            raise ValueError(f"no time: {seconds}")


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One recorded decision."""

    time_s: float
    sequence: int
    digest: str
    policy: str
    latency_s: float
    problem: str
    """Why the fallback decided instead of the policy; empty when the policy decided."""


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """One decision's placement of one job."""

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
    """The only writer of the journal. Invariant: when a method returns, its arguments are in the file; otherwise it has
    raised."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it (mode 0600 in a folder of mode 0700). Raises JournalError that says what to do.

        A damaged file, or one of a newer version, is set aside, and its readable rows are copied.
        """
        self._file = JournalFile(path)
        self._file.listen(self._write_again)
        self._ledger: Ledger | None = None
        self._not_understood: dict[tuple[JobKey, str], object] = {}
        """Values in the file that could not be decoded; they stay there until there is a newer value.
        Bound: the rows of the file when it was read."""
        self._complete = False
        """True when the ledger is complete, so that a file written from it lacks nothing."""
        self._outdated = False
        """True while another controller may have placed jobs of which this file knows nothing (`distrust`)."""
        self._logged: set[str] = set()
        """Rows that were logged. Bound: `_NAMED`, and one."""
        self.preemptions = PreemptionTable(self._file.read, self._file.writing)
        self.job_notes = JobNoteTable(self._file.read, self._file.writing)
        self.user_changes = UserChangeTable(self._file.read, self._file.writing)
        self.given_to_slurm = GivenToSlurmReader(self._file.read)

    @property
    def _db(self) -> sqlite3.Connection:
        return self._file.db

    def close(self) -> None:
        """Write everything back into the one file, and close it."""
        self._file.close()

    @property
    def is_well(self) -> bool:
        """False from a failure until a write has succeeded again. It may be called from other threads."""
        return self._file.is_well

    def require_well(self) -> None:
        """Raise JournalError while the journal cannot be written. No change may be sent to Slurm then."""
        self._file.require_well()

    @property
    def notice(self) -> str:
        """Text on the last file since the start that could not be used; empty when there was none."""
        return self._file.notices[-1] if self._file.notices else ""

    def notify(self, listener: Callable[[str], None]) -> None:
        """Call the listener for every file that could not be used, at once for those of the start. It must not raise."""
        self._file.notify(listener)

    # --- what is known of jobs

    def load_ledger(self) -> Ledger:
        """Return the ledger as of the last write. A value that cannot be decoded is left out, and stays in the file."""
        ledger = Ledger()
        self._not_understood.clear()
        for job_id, submit_time_s, *values in self._file.read(f"SELECT {_JOB_COLUMNS} FROM job"):  # noqa: S608
            try:
                key = decode_key(job_id, submit_time_s)
            except RowError as error:
                self._log_once("job", str(job_id)[:24], error)
                continue
            for (column, decode), value in zip(_DECODERS.items(), values, strict=True):
                if value is None:
                    continue
                try:
                    _facts(ledger)[column][key] = decode(value)
                except RowError as error:
                    self._not_understood[key, column] = value
                    self._log_once(f"job.{column}", key.job_id, error)
        self._ledger = ledger
        self._complete = not self._unsure
        return ledger

    def _log_once(self, column: str, job_id: str, error: Exception) -> None:
        """Log a row that cannot be decoded, once."""
        what = f"{column} {job_id}"
        if what not in self._logged and len(self._logged) <= _NAMED:
            self._logged.add(what)
            more = "; further rows are not logged" if len(self._logged) > _NAMED else ""
            log.error("journal_row_not_understood", column=column, job=job_id, problem=f"{error}{more}")

    def save_jobs(self, ledger: Ledger, keys: Iterable[JobKey]) -> set[JobKey]:
        """Write the ledger's facts on these jobs; a job without facts is deleted.

        This includes the user's own request, which a pin is about to overwrite in Slurm: it must survive a loss of power. Returns
        the jobs whose facts led to an unexpected error: the file has those of before.
        """
        facts = _facts(ledger)
        marks = ", ".join("?" * (2 + len(_DECODERS)))
        unsaved: set[JobKey] = set()
        with self._file.writing(durable=True) as db:
            for key in keys:
                with apart("facts for the journal", key.job_id) as step:
                    values = [
                        _ENCODERS[column](of[key]) if key in of else self._not_understood.get((key, column))
                        for column, of in facts.items()
                    ]
                if step.failed:
                    unsaved.add(key)
                elif any(key in of for of in facts.values()):
                    statement = f"INSERT OR REPLACE INTO job ({_JOB_COLUMNS}) VALUES ({marks})"  # noqa: S608
                    db.execute(statement, (*encode_key(key), *values))
                else:
                    where = "WHERE job_id = ? AND submit_time_s = ?"
                    db.execute(f"DELETE FROM job {where}", encode_key(key))  # noqa: S608
        return unsaved

    def _write_again(self) -> None:
        """Write what is in memory into a file that has replaced another."""
        if self._ledger is not None:
            self.save_jobs(self._ledger, self._ledger.keys())
        self.preemptions.write_again()
        if self._ledger is not None and self._complete:
            self.found_all()

    # --- after a loss

    def distrust(self, *, even_if_new: bool) -> None:
        """Treat the file as one that lost facts, until `found_all`, because another controller may have placed jobs since the last
        write. To be called before `load_ledger`.

        `even_if_new`: a file that has just been made counts so too; otherwise it may belong to a new installation.
        """
        self._outdated = even_if_new or not self._file.note(UNSURE)

    @property
    def _unsure(self) -> str:
        return "lost" if self._outdated else self._file.note(UNSURE)

    def may_lack(self, key: JobKey, *, seen_here: bool) -> bool:
        """Return whether the job's own request may have been lost with a journal, or cannot be read.

        `seen_here`: some jobs in Slurm have Headway's mark, so it ran here before, even if the journal is new.
        """
        unsure = self._unsure
        return unsure == "lost" or (unsure == "new" and seen_here) or (key, "original") in self._not_understood

    def found_all(self) -> None:
        """Record that nothing is missing any more: what was lost has been rebuilt from Slurm's data."""
        if self._file.note(UNSURE):
            with self._file.writing(durable=True) as db:
                db.execute("DELETE FROM note WHERE name = ?", (UNSURE,))
        self._complete, self._outdated = True, False

    # --- steps under way

    def begin(self, verb: str, details: Mapping[JobKey, str], time_s: float) -> list[int]:
        """Record that this change is about to be sent to Slurm. Returns the numbers for `finish`, in the order of `details`."""
        numbers = []
        with self._file.writing() as db:
            for key, detail in details.items():
                cursor = db.execute(
                    "INSERT INTO intent (time_s, verb, job_id, submit_time_s, detail) VALUES (?, ?, ?, ?, ?)",
                    (time_s, verb, *encode_key(key), detail),
                )
                numbers.append(int(cursor.lastrowid or 0))
        return numbers

    def finish(self, numbers: Sequence[int], keys: Iterable[JobKey], failures: Failures, time_s: float) -> None:
        """Record how the steps ended. A step that slurmctld did not answer stays open: the next snapshot shows its outcome."""
        ends = [
            (time_s, failures[key].message if key in failures else "done", number)
            for number, key in zip(numbers, keys, strict=True)
            if key not in failures or not failures[key].unavailable
        ]
        with self._file.writing() as db:
            db.executemany("UPDATE intent SET done_time_s = ?, outcome = ? WHERE id = ?", ends)

    def newest_step(self) -> int:
        """Return the number of the newest step; 0 when there is none. Later steps have greater numbers."""
        ((number,),) = self._file.read("SELECT IFNULL(MAX(id), 0) FROM intent")
        return int(number)

    def open_intents(self) -> list[Intent]:
        """Return the steps whose end is not known."""
        return self._intents("WHERE done_time_s IS NULL ORDER BY id", ())

    def intents_of(self, key: JobKey, limit: int = 50) -> list[Intent]:
        """Return the newest steps of one job, newest first."""
        return self._intents(
            "WHERE job_id = ? AND submit_time_s = ? ORDER BY id DESC LIMIT ?", (*encode_key(key), limit)
        )

    def _intents(self, where: str, values: tuple[object, ...]) -> list[Intent]:
        rows = self._file.read(
            f"SELECT id, time_s, verb, job_id, submit_time_s, detail, outcome FROM intent {where}",  # noqa: S608
            values,
        )
        return [
            Intent(number, time_s, verb, lenient_key(job_id, submit_time_s), detail, outcome)
            for number, time_s, verb, job_id, submit_time_s, detail, outcome in well_typed(
                rows, "number", "number", "text", "text", "number", "text", "text?"
            )
        ]

    def settle(self, outcomes: Mapping[int, str], time_s: float) -> None:
        """Record outcomes, by number, of steps that are open because the controller was killed, or slurmctld did not answer."""
        with self._file.writing() as db:
            db.executemany(
                "UPDATE intent SET done_time_s = ?, outcome = ? WHERE id = ?",
                [(time_s, outcome, number) for number, outcome in outcomes.items()],
            )

    # --- decisions

    def record_decision(self, entry: DecisionEntry, placed: Sequence[tuple[JobKey, str, str]]) -> None:
        """Record one decision, with (job, placement, reason) for each job that it placed."""
        with self._file.writing() as db:
            cursor = db.execute(
                "INSERT INTO decision (time_s, sequence, digest, policy, latency_s, problem) VALUES (?, ?, ?, ?, ?, ?)",
                (entry.time_s, entry.sequence, entry.digest, entry.policy, entry.latency_s, entry.problem),
            )
            db.executemany(
                "INSERT INTO placed VALUES (?, ?, ?, ?, ?)",
                [(cursor.lastrowid, *encode_key(key), where, why) for key, where, why in placed],
            )

    def decisions_of(self, key: JobKey, limit: int = 20) -> list[PlacedEntry]:
        """Return the decisions on a job, newest first."""
        return self._decisions("job_id = ? AND submit_time_s = ?", (*encode_key(key), limit))

    def decisions_of_id(self, job_id: str, since_s: float, limit: int = 50) -> list[PlacedEntry]:
        """Return the decisions since then on a job of that id, whatever its submit time was; newest first."""
        return self._decisions("job_id = ? AND time_s >= ?", (job_id, since_s, limit))

    def _decisions(self, where: str, values: tuple[object, ...]) -> list[PlacedEntry]:
        rows = self._file.read(
            f"{_PLACED} WHERE {where} ORDER BY decision.id DESC LIMIT ?",
            values,
        )
        sound = well_typed(rows, "number", "number", "text", "text", "number", "text", "text", "text")
        return [PlacedEntry(DecisionEntry(*row[:6]), row[6], row[7]) for row in sound]

    # --- past runs

    def record_runs(self, runs: Iterable[RunRecord]) -> None:
        """Record how jobs ended; a job given twice is recorded once."""
        with self._file.writing() as db:
            db.executemany(
                f"INSERT OR IGNORE INTO run ({_RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                [
                    (
                        *encode_key(run.key), run.user, run.name, run.start_time_s, run.end_time_s,
                        run.service_s, run.num_gpus, run.num_nodes, run.state, run.gpu_s,
                    )
                    for run in runs
                ],
            )  # fmt: skip

    @property
    def path(self) -> Path:
        """The file. Other processes and threads may read it by connections of their own."""
        return self._file.path

    def last_run(self, job_id: str) -> RunRecord | None:
        """Return the newest ended job of that id, as users know it."""
        newest = "WHERE job_id = ? ORDER BY submit_time_s DESC LIMIT 1"
        rows = self._file.read(f"SELECT {_RUN_COLUMNS} FROM run {newest}", (job_id,))  # noqa: S608 - names of our own
        kinds = ("text", "number", "text", "text", "number?", "number", "number", "number", "number", "text", "number?")
        row = next(well_typed(rows, *kinds), None)
        return None if row is None else RunRecord(lenient_key(row[0], row[1]), *row[2:])

    def end_of_earlier(self, job_id: str, until_s: float) -> float:
        """Return the end of the last job of that id that ended by then, Unix time; 0 when there is none."""
        rows = self._file.read(
            "SELECT MAX(end_time_s) FROM run WHERE job_id = ? AND end_time_s <= ?", (job_id, until_s)
        )
        return max((end_s for (end_s,) in well_typed(rows, "number")), default=0.0)

    def estimates(
        self, runs: int, min_runs: int, of: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Estimate]:
        """Return mean and standard deviation of the last `runs` completed runs of (user, name) with at least `min_runs` runs.

        `of` None: every (user, name) that ever ran.
        """
        if of is None:
            of = well_typed(self._file.read("SELECT DISTINCT user, name FROM run"), "text", "text")
        found = {}
        for user, name in of:
            rows = self._file.read(
                "SELECT service_s FROM run WHERE user = ? AND name = ? AND state = 'COMPLETED'"
                " ORDER BY end_time_s DESC LIMIT ?",
                (user, name, runs),
            )
            times_s = [service_s for (service_s,) in well_typed(rows, "number")]
            if len(times_s) >= min_runs:
                found[user, name] = Estimate(fmean(times_s), stdev(times_s) if len(times_s) > 1 else 0.0, len(times_s))
        return found

    # --- retention

    def prune(self, keep_decisions: int, older_than_s: float) -> None:
        """Drop old decisions, and steps, runs and preemptions that ended before that time or exceed the maximum number of rows."""
        with self._file.writing() as db:
            db.execute("DELETE FROM decision WHERE id <= (SELECT MAX(id) FROM decision) - ?", (keep_decisions,))
            beyond = "SELECT end_time_s FROM run ORDER BY end_time_s DESC LIMIT 1 OFFSET ?"
            db.execute(
                f"DELETE FROM run WHERE end_time_s < MAX(?, IFNULL(({beyond}), 0))",  # noqa: S608 - words of our own
                (older_than_s, MAX_RUNS - 1),
            )
            prune_intents(db, older_than_s, MAX_INTENTS)
            prune_preemptions(db, older_than_s)
            prune_job_notes(db, older_than_s)


def _facts(ledger: Ledger) -> dict[str, dict[JobKey, Any]]:
    """Return the ledger's dictionaries by the column of `job` that stores them, in the order of the columns."""
    return {
        "original": ledger.originals,
        "pin": ledger.pins,
        "refusal": ledger.refusals,
        "served": ledger.served,
        "yielded": ledger.yielded,
        "elsewhere": ledger.relocations,
    }
