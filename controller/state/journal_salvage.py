"""Reads what can be read of a journal that is damaged or has a newer schema. Row by row, the users' own requests first.

Nothing here writes into that file, and nothing raises for it: unreadable rows are counted as missing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import structlog

from controller.base.sqlite_file import connect_read_only, readable, require_size, time_limit
from controller.slurm.model.job import JobKey, ResourceRequest
from controller.state.journal_rows import RowError, decode_key, decode_pin, decode_request
from controller.state.journal_schema import JOURNAL, TABLES, TAKEN_FROM, UNSURE
from controller.state.ledger import PinRecord

log = structlog.get_logger(__name__)

_ORDER = {
    "job": ("job_id", "submit_time_s"),
    "run": ("job_id", "submit_time_s"),
    "job_note": ("job_id", "submit_time_s"),
    "note": ("name",),
}
"""Keys of the tables without a rowid; other tables are read by rowid."""
_EFFECT = "jobs whose request is not known start on the nodes that Headway last chose for them"
_EFFECT_PLACED = (
    "such jobs stay bound to the nodes of their last run if Slurm requeues them while the controller is away"
)
_NAMED = 5
_PAGE_BYTES = 4096
_MOST_BYTES = 128 << 20
_LIMIT_S = 60.0
_MOST_ROWS = 2_000_000
"""Maximum number of rows of one table: damaged pages can form a loop."""
_LARGEST_NUMBER = 2**62
"""Largest row number to accept: after a larger one SQLite would have no numbers left."""

Row = tuple[object, ...]
Take = Callable[[Row], None]
"""Called with every row, sometimes twice."""


@dataclass(slots=True)
class Salvaged:
    """Result of a salvage."""

    rows: dict[str, int] = field(default_factory=dict)
    """Number of copied rows, by table. Bound: `TABLES`."""
    jobs_missing: bool = False
    """True when some rows of jobs could not be read; their content is lost."""
    unsure: str = ""
    """Note of the source file itself that it may lack facts."""


def read_originals(path: Path, limit_s: float = 15.0) -> dict[JobKey, ResourceRequest]:
    """Return the readable requests of jobs that Headway has pinned. Never raises, and takes little longer than `limit_s`.

    For the watchdog, which must work with Slurm alone: empty when there is no readable journal.
    """
    found: dict[JobKey, ResourceRequest] = {}

    def take(key: JobKey, original: object) -> None:
        if original is not None:
            found.setdefault(key, decode_request(original))

    _read_jobs(path, ("original",), take, limit_s, _EFFECT)
    return found


def read_placed(path: Path, limit_s: float = 15.0) -> dict[JobKey, tuple[ResourceRequest, PinRecord]]:
    """Return request and last pin of each job that Headway has placed, where both can be read. As `read_originals` otherwise."""
    found: dict[JobKey, tuple[ResourceRequest, PinRecord]] = {}

    def take(key: JobKey, original: object, pin: object) -> None:
        if original is not None and pin is not None:
            found.setdefault(key, (decode_request(original), decode_pin(pin)))

    _read_jobs(path, ("original", "pin"), take, limit_s, _EFFECT_PLACED)
    return found


def _read_jobs(path: Path, columns: Sequence[str], take: Callable[..., None], limit_s: float, effect: str) -> None:
    """Call `take` with each job's key and these columns. It may raise RowError; such rows are left out."""
    taken, refused = 0, {}

    def take_row(row: Row) -> None:
        nonlocal taken
        job_id, submit_time_s, *values = row
        try:
            if any(value is not None for value in values):
                take(decode_key(job_id, submit_time_s), *values)
                taken += 1
        except RowError as error:
            refused[str(job_id)[:24]] = str(error)

    if not os.path.lexists(path):
        return
    scan = partial(_scan, table="job", columns=("job_id", "submit_time_s", *columns), take=take_row)
    problem = _read_somehow(path, scan, limit_s, job=True)
    if problem:
        log.error("journal_not_readable", problem=problem, requests_read=taken, effect=effect)
    if refused:
        jobs = dict(list(refused.items())[:_NAMED])
        log.error("requests_not_understood", columns=columns, jobs=jobs, count=len(refused), effect=effect)


def salvage(source: Path, target: sqlite3.Connection) -> Salvaged:
    """Copy the readable rows into the new journal, beside its own rows. Raises only for errors of the new journal."""
    done = Salvaged()
    for table in TABLES:
        columns = {str(row[1]): str(row[2]) for row in target.execute(f"PRAGMA table_info({table})")}
        inserter = _Inserter(target, table, columns)
        scan = partial(_scan, table=table, columns=tuple(columns), take=inserter)
        problem = _read_somehow(source, scan, _LIMIT_S, job=table == "job")
        if inserter.problem is not None:
            raise inserter.problem
        done.rows[table] = inserter.inserted
        if problem or inserter.refused:
            problem = problem or f"{inserter.refused} rows are not understood"
            log.error("rows_lost", table=table, saved=inserter.inserted, problem=problem)
            done.jobs_missing = done.jobs_missing or table == "job"
    target.execute("DELETE FROM placed WHERE decision NOT IN (SELECT id FROM decision)")
    notes: dict[object, object] = {}

    def take(row: Row) -> None:
        notes[row[0]] = row[1]

    scan = partial(_scan, table="note", columns=("name", "value"), take=take)
    _read_somehow(source, scan, _LIMIT_S, job=False)
    if TAKEN_FROM in notes:  # it had not yet copied the rows of the file before it
        done.jobs_missing = True
    elif notes.get(UNSURE) in ("new", "lost"):
        done.unsure = str(notes[UNSURE])
    return done


class _Inserter:
    """Inserts rows whose values have the columns' types. Its own errors are kept apart from those of the source."""

    def __init__(self, db: sqlite3.Connection, table: str, columns: Mapping[str, str]) -> None:
        marks = ", ".join("?" * len(columns))
        self._statement = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        self._kinds = [_KINDS[kind] for kind in columns.values()]
        self._db = db
        self.inserted = 0
        self.refused = 0
        self.problem: sqlite3.Error | None = None
        """Error that the new journal cannot be written; None while it can."""

    def __call__(self, row: Row) -> None:
        if not all(map(_is_of, row, self._kinds)):
            self.refused += 1
            return
        try:
            self.inserted += self._db.execute(self._statement, row).rowcount
        except sqlite3.IntegrityError:  # a placement whose decision is missing
            self.refused += 1
        except sqlite3.Error as error:
            self.problem = error
            raise


_KINDS: dict[str, tuple[type, ...]] = {"TEXT": (str,), "INTEGER": (int,), "REAL": (float, int)}


def _is_of(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, int):
        return int in kinds and abs(value) <= _LARGEST_NUMBER
    return value is None or isinstance(value, kinds)


def _read_somehow(path: Path, read: Callable[[sqlite3.Connection], None], limit_s: float, *, job: bool) -> str:
    """Read with the write-ahead log; when that fails, in other ways. Returns the first problem.

    `job`: the table to read is `job`.
    """
    problem = ""
    ways = [partial(connect_read_only, path), partial(connect_read_only, path, immutable=True)]
    if job:
        ways.append(partial(_with_a_sound_beginning, path))
    for way in ways:
        try:
            with closing(way()) as db, time_limit(db, limit_s):
                db.execute("PRAGMA writable_schema = ON")  # damaged entries of the schema are skipped
                read(db)
                return problem
        except Exception as error:  # noqa: BLE001 - a damaged file raises more than sqlite3.Error; another way may do better
            problem = problem or f"{type(error).__name__}: {str(error)[:200]}"
    return problem


def _with_a_sound_beginning(path: Path) -> sqlite3.Connection:
    """Return the file's pages in memory, behind a sound first page that names only the table `job`.

    The first page lists the tables and their places; without it no table can be found. But `job` was made first, so it begins on
    the second page.
    """
    if require_size(path) > _MOST_BYTES:
        raise RowError("too large to be read in memory")
    data = path.read_bytes()
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        fresh.execute(JOURNAL.statements[0])
        first = bytearray(fresh.serialize()[:_PAGE_BYTES])
    pages = len(data) // _PAGE_BYTES
    first[28:32] = pages.to_bytes(4, "big")  # the size of the file in its header
    db = readable(sqlite3.connect(":memory:"))
    db.deserialize(bytes(first) + data[_PAGE_BYTES : pages * _PAGE_BYTES])
    return db


def _scan(db: sqlite3.Connection, *, table: str, columns: Sequence[str], take: Take) -> None:
    """Read the table from its beginning and, when a damaged page ends that, from its end. Raises the first error."""
    there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    if not there:
        raise RowError(f"no table {table} can be read")
    wanted = ", ".join(name if name in there else f"NULL AS {name}" for name in columns)
    first: Exception | None = None
    for direction in ("ASC", "DESC"):
        keys = ", ".join(f"{name} {direction}" for name in _ORDER.get(table, ("rowid",)))
        try:
            for row in islice(db.execute(f"SELECT {wanted} FROM {table} ORDER BY {keys}"), _MOST_ROWS):  # noqa: S608
                take(row)
        except Exception as error:  # noqa: BLE001 - as above
            first = first or error
        if first is None:
            break
    if first is not None:
        raise first
    if table == "job" and "original" not in there:
        raise RowError("the column with the jobs' own requests cannot be read")
