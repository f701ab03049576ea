"""The journal's file: opens, writes and reads it, and replaces it when it is damaged.

A file that cannot be used is set aside (see sqlite_file). A new file replaces it, and the readable rows are copied into it. This
happens at the start, and whenever damage appears later: the present write then fails once, with JournalError, and the next cycle
finds a working journal. A full disk and a file without write permission are not damage: they raise JournalError until an
administrator repairs them.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import structlog

from controller.base.errors import JournalError
from controller.base.sqlite_file import (
    UnusableFileError,
    connect,
    is_damage,
    move_aside,
    name_aside,
)
from controller.base.sqlite_schema import make_tables, prepare, transaction
from controller.state.journal_salvage import salvage
from controller.state.journal_schema import JOURNAL, TAKEN_FROM, UNSURE

log = structlog.get_logger(__name__)

_MOST_RENEWALS = 3
_RENEWALS_WITHIN_S = 600.0
"""A disk that damages several files is left alone: the lease becomes stale, and the watchdog releases the jobs."""
_PROBE_BYTES = 256 * 1024
"""Size of the write that tests a journal after a failure: more than a cycle writes. A small write may succeed on a full disk,
inside a log that was longer before."""
_PROBE = "probe"
_NOTICES = 10
Row = tuple[Any, ...]


class JournalFile:
    """Invariant: `db` is a file of the present schema with all tables, which no other process writes."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises JournalError that says what to do."""
        self.path = path
        self._next = path.with_name(f"new-{path.name}")
        """File that will replace the present one, while it is being made."""
        self.notices: list[str] = []
        """Texts for users on files that could not be used. Bound: `_NOTICES`."""
        self._on_notice: Callable[[str], None] = log.debug
        self._on_renewed: Callable[[], None] = lambda: None
        self._unwritten = False
        """True while the listener to renewals has not finished for the present file."""
        self._renewed_s: list[float] = []
        """Times at which the file was replaced. Bound: `_MOST_RENEWALS`."""
        self._well = True
        self._ended = False
        """True when `db` was closed and no other file could be opened yet."""
        self._lock: weakref.finalize[..., JournalFile] | None = None
        self.db = self._open()

    def listen(self, on_renewed: Callable[[], None]) -> None:
        """Call the listener when a new file is in place, so that facts in memory are written into it; once more after it raised."""
        self._on_renewed = on_renewed

    def notify(self, on_notice: Callable[[str], None]) -> None:
        """Call the listener for every file that could not be used, at once for those of the start. It must not raise."""
        for notice in self.notices:
            on_notice(notice)
        self._on_notice = on_notice

    def close(self) -> None:
        """Write everything back into the one file, and close it."""
        self.db.close()
        if self._lock is not None:
            self._lock()

    # --- reading and writing

    def read(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows, from the file that replaces this one if it turns out to be damaged. Raises JournalError."""
        try:
            return self.db.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            before = self.db
            problem = self.failed("read", error)
            if self.db is before:
                raise problem from error
        try:
            return self.db.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self.failed("read", error) from error

    def writing(self, *, durable: bool = False) -> Transaction:
        """Begin an atomic write. Raises JournalError, and then nothing is written.

        `durable`: the write must survive a loss of power (0.3 ms more on an SSD). Without it, a loss of power may undo the newest
        writes, but never damages the file.
        """
        return Transaction(self, durable=durable)

    def failed(self, verb: str, error: Exception) -> JournalError:
        """Return the exception to raise for an error. A damaged file has been replaced when this returns."""
        self._well = False
        if not is_damage(error):
            return JournalError(f"the journal cannot be {verb}: {error}; is the disk full?")
        try:
            self.renew(str(error))
        except JournalError as problem:
            return problem
        return JournalError(f"the journal was damaged ({error}) and was set aside; another one is in its place")

    @property
    def is_well(self) -> bool:
        """False from a failure until a write has succeeded again. It may be called from other threads."""
        return self._well and not self._ended

    def require_well(self) -> None:
        """Raise JournalError while the journal cannot be written. After a failure, test it with a write larger than any step."""
        try:
            ours = os.path.samestat(self.path.stat(), self._opened)
        except OSError:
            ours = False
        if not ours:
            self._reopen("the journal's file was moved away or replaced")
        elif self._ended:
            self._reopen("the journal was opened again")
        elif self._unwritten:
            self._have_written_again()
        if self._well:
            return
        with self.writing(durable=True) as db:
            db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (_PROBE, "x" * _PROBE_BYTES))
        with self.writing() as db:
            db.execute("DELETE FROM note WHERE name = ?", (_PROBE,))
        self._well = True

    # --- notes

    def note(self, name: str) -> str:
        """Return a note, or an empty string."""
        rows = self.read("SELECT value FROM note WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    # --- replacing

    def renew(self, why: str) -> None:
        """Set the file aside, make another, and copy the rows that can be read. Raises JournalError."""
        now = time.monotonic()
        self._renewed_s = [at for at in self._renewed_s if now - at < _RENEWALS_WITHIN_S]
        if len(self._renewed_s) >= _MOST_RENEWALS:
            raise JournalError(
                f"{self.path}: damaged again and again ({why}); check the disk. Until then Slurm schedules without Headway"
            )
        self._renewed_s.append(now)
        self._end()
        self.db = self._replaced(UnusableFileError("damaged", why))
        self._ended = False
        self._have_written_again()

    def _reopen(self, why: str) -> None:
        log.error("journal_opened_again", problem=why)
        self._end()
        self.db = self._open()
        self._ended = False
        self._notice(f"{why}; the controller has written its present state into it")
        self._have_written_again()

    def _have_written_again(self) -> None:
        self._unwritten = True
        self._on_renewed()
        self._unwritten = False

    def _notice(self, text: str) -> None:
        self.notices = [*self.notices, text][-_NOTICES:]
        self._on_notice(text)

    def _end(self) -> None:
        self._ended = True
        with suppress(sqlite3.Error):
            self.db.rollback()
        with suppress(sqlite3.Error):
            self.db.close()

    # --- opening

    def _open(self) -> sqlite3.Connection:
        if self._lock is None:
            self._lock = self._locked()
        try:
            if self._lock is not None and self._finish_replacing():
                self._notice(
                    "the replacement of the journal, begun at an earlier start, was completed; see the files beside it"
                )
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self.path, error) from error
        try:
            return self._opened_or_refused()
        except UnusableFileError as problem:
            return self._replaced(problem)

    def _locked(self) -> weakref.finalize[..., JournalFile] | None:
        """Lock the folder until this process ends. Returns None when another process has locked it.

        filelock is not used: it locks a file of its own, which would have to be made beside the journal; this locks the folder.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(self.path, error) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(folder)
            return None
        return weakref.finalize(self, os.close, folder)

    def _replaced(self, problem: UnusableFileError) -> sqlite3.Connection:
        """Replace the file. Raises JournalError when another process uses it, such as the controller of a newer version."""
        if self._lock is None:
            raise _unusable(self.path, f"{problem}; and another process has it open")
        aside = name_aside(self.path, problem.kind, time.time())
        try:
            self._make_next(aside.name)
            self._finish_replacing()
        except (OSError, sqlite3.Error, UnusableFileError) as error:
            raise _unusable(self.path, error) from error
        try:
            db = self._opened_or_refused()
        except UnusableFileError as again:
            raise _unusable(self.path, again) from again
        self._notice(
            f"the journal could not be used ({problem}): it is {aside} now, and a new one has taken over what could be read"
        )
        log.error("journal_set_aside", problem=str(problem), file=str(aside))
        return db

    def _make_next(self, aside: str) -> None:
        """Make the complete file that will replace this one, with a note of the file to copy rows from."""
        self._next.unlink(missing_ok=True)
        with closing(connect(self._next)) as db:
            make_tables(db, JOURNAL, 0, lambda version: _note_origin(db, version, taken_from=aside))

    def _finish_replacing(self) -> bool:
        """Set the file aside and put the next one in its place, if there is one. Returns whether there was.

        A process that is killed in between continues here at its next start.
        """
        aside = self._next_takes_from()
        if aside is None:
            self._next.unlink(missing_ok=True)  # it is incomplete
            return False
        if os.path.lexists(self.path) and os.path.lexists(aside):  # another file has been put in place since
            self._next.unlink()
            return False
        move_aside(self.path, aside)
        self._next.rename(self.path)
        return True

    def _next_takes_from(self) -> Path | None:
        """Return the path under which the present file will be set aside; None when no complete next file exists."""
        if not os.path.lexists(self._next):
            return None
        try:
            with closing(connect(self._next)) as db:
                row = db.execute("SELECT value FROM note WHERE name = ?", (TAKEN_FROM,)).fetchone()
        except (sqlite3.Error, UnusableFileError) as error:
            if isinstance(error, sqlite3.Error) and not is_damage(error):
                raise
            return None
        return None if row is None else self.path.with_name(str(row[0]))

    def _opened_or_refused(self) -> sqlite3.Connection:
        """Open the file. Raises UnusableFileError when another file may replace it, else JournalError."""
        db: sqlite3.Connection | None = None
        try:
            db = connect(self.path)
            self._opened = self.path.stat()
            self._prepare(db)
            self._take_over(db)
        except (OSError, sqlite3.Error, UnicodeDecodeError, UnusableFileError) as error:
            if db is not None:
                db.close()
            if isinstance(error, UnusableFileError):
                raise
            if is_damage(error):
                raise UnusableFileError("damaged", str(error)) from error
            raise _unusable(self.path, error) from error
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA foreign_keys = ON")
        prepare(db, JOURNAL, lambda version: _note_origin(db, version))
        (newest,) = db.execute("SELECT MAX(number) FROM preemption").fetchone()
        if newest is not None and not 0 < newest < 2**53:
            raise UnusableFileError("damaged", f"a preemption has the number {newest}")

    def _take_over(self, db: sqlite3.Connection) -> None:
        """Copy the rows from the file that was set aside. A crash in between repeats this."""
        row = db.execute("SELECT value FROM note WHERE name = ?", (TAKEN_FROM,)).fetchone()
        if row is None:
            return
        with transaction(db):
            found = salvage(self.path.with_name(str(row[0])), db)
            db.execute("DELETE FROM note WHERE name = ?", (UNSURE,))
            unsure = "lost" if found.jobs_missing else found.unsure
            if unsure:
                db.execute("INSERT INTO note VALUES (?, ?)", (UNSURE, unsure))
            db.execute("DELETE FROM note WHERE name = ?", (TAKEN_FROM,))
        log.warning("journal_rows_taken_over", rows=found.rows, all_jobs=not found.jobs_missing)


class Transaction:
    """One atomic write; errors of SQLite come out as JournalError."""

    def __init__(self, file: JournalFile, *, durable: bool) -> None:
        self._file = file
        self._durable = durable
        self._inner = transaction(file.db)

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._file.db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            return self._inner.__enter__()
        except sqlite3.Error as error:
            raise self._file.failed("written", error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._inner.__exit__(kind, error, trace)
        except sqlite3.Error as failure:
            raise self._file.failed("written", failure) from failure
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise self._file.failed("written", error) from error


def _note_origin(db: sqlite3.Connection, version: int, taken_from: str = "") -> None:
    """Note in a file that is being made that it is new, and which file's rows are still to be copied."""
    if version == 0:
        db.execute("INSERT OR REPLACE INTO note VALUES (?, 'new')", (UNSURE,))
    if taken_from:
        db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (TAKEN_FROM, taken_from))


def _unusable(path: Path, error: Exception | str) -> JournalError:
    return JournalError(
        f"{path}: the journal cannot be opened: {error}; check owner, mode and free space of the folder "
        "(running jobs are not affected, and the watchdog releases those that wait)"
    )
