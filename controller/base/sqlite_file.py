"""SQLite files that Headway writes: opening them, distinguishing damage from a full disk, and moving unusable files aside.

Nothing is destroyed: a file that cannot be used is renamed, with its write-ahead log, and a new one takes its place. The newest few
of these are kept.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

KEPT_ASIDE = 5
"""Files of one kind (damaged, or of a newer schema) that are kept beside the one in use; the oldest are deleted."""
_SIDE_FILES = ("-wal", "-shm")
_BUSY_S = 5.0
_STEPS = 10_000
"""Instructions of SQLite between two checks of the clock."""
_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_ERROR,  # no such table, no such column: our statements are right, so the schema is not
    }
)  # fmt: skip


class UnusableFileError(Exception):
    """This file cannot be used, and another may replace it. The text says why."""

    def __init__(self, kind: str, why: str) -> None:
        """`kind` is the word for the name under which the file is set aside."""
        super().__init__(why)
        self.kind = kind


def is_damage(error: Exception) -> bool:
    """Return whether the file itself is damaged; False for a fault of its disk, its mode or another process."""
    if isinstance(error, UnicodeDecodeError):  # from the sqlite3 module, for a name or a message that is no UTF-8
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_ERROR and "transaction" in str(
        error
    ):  # one within another: a bug, and no fault of the file
        return False
    # `connect` opens a file for writing, so only its header can say that it must not be written. Codes for other causes are longer.
    return isinstance(code, int) and (code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_READONLY)


def connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """Open the file for writing, or make it: mode 0600, in a folder of mode 0700. Never waits for a pipe, never follows a link.

    Raises OSError or sqlite3.Error; UnusableFileError where something that is no file stands in its place.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except IsADirectoryError:
        raise UnusableFileError("damaged", "there is a folder in its place") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableFileError("damaged", "it is not a regular file")
    finally:
        os.close(descriptor)
    _require_files(path, _SIDE_FILES)
    return readable(sqlite3.connect(path, isolation_level=None, timeout=_BUSY_S, check_same_thread=not any_thread))


def connect_read_only(path: Path, *, immutable: bool = False, any_thread: bool = False) -> sqlite3.Connection:
    """Open an existing file for reading. `immutable` leaves out its write-ahead log. Raises as `connect` does."""
    _require_files(path, ("", *_SIDE_FILES))
    more = "&immutable=1" if immutable else ""
    uri = f"file:{quote(str(path))}?mode=ro{more}"
    one_thread = not any_thread
    return readable(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S, check_same_thread=one_thread))


def require_size(path: Path) -> int:
    """Return the size of a regular file, bytes. Raises OSError or UnusableFileError."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise UnusableFileError("damaged", f"{path.name} is not a regular file")
    return found.st_size


def _require_files(path: Path, endings: tuple[str, ...]) -> None:
    """Refuse pipes and devices: SQLite would wait at them."""
    for ending in endings:
        with suppress(FileNotFoundError):
            require_size(Path(f"{path}{ending}"))


def readable(db: sqlite3.Connection) -> sqlite3.Connection:
    """Read damaged text with replacement characters, so that it costs its own row and not the whole query."""
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return db


@contextmanager
def time_limit(db: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    """End queries within the context after so many seconds (sqlite3.OperationalError): pages of a damaged file can form a
    loop."""
    end_s = time.monotonic() + limit_s
    db.set_progress_handler(lambda: time.monotonic() > end_s, _STEPS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)


def check(db: sqlite3.Connection, limit_s: float) -> str:
    """Check every page; return the first complaint, or an empty string. A file too large for the limit counts as sound.

    70 MB take 0.12 s. What this does not find shows when it is read, and is handled then.
    """
    try:
        with time_limit(db, limit_s):
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return ""
        raise
    return "" if found == "ok" else str(found)


def require_columns(db: sqlite3.Connection, schema: str) -> None:
    """Raise UnusableFileError where a table of this schema lacks a column. SQLite's own check passes over damage to names."""
    with closing(sqlite3.connect(":memory:")) as sound:
        sound.executescript(schema)
        tables = [
            row[0] for row in sound.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT NULL")
        ]
        for table in tables:
            wanted, there = ({row[1:3] for row in each.execute(f"PRAGMA table_info({table})")} for each in (sound, db))
            if not wanted <= there:
                raise UnusableFileError("damaged", f"table {table} lacks columns")


def set_aside(path: Path, kind: str, now_s: float) -> Path:
    """Rename the file and what belongs to it; return its new path. Raises OSError."""
    aside = name_aside(path, kind, now_s)
    move_aside(path, aside)
    return aside


def name_aside(path: Path, kind: str, now_s: float) -> Path:
    """Return the path to which `move_aside` is to rename this file."""
    second = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_s))
    return path.with_name(f"{path.name}.{kind}-{second}.{int(now_s * 1e6) % 1_000_000:06}Z")


def move_aside(path: Path, aside: Path) -> None:
    """Rename the file and what belongs to it, or what is left of them after a crash in between. Raises OSError.

    The write-ahead log goes first: beside a new file SQLite would take it for that file's own.
    """
    for ending in (*_SIDE_FILES, ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")  # noqa: PTH104 - the name of a file, and an ending
    _keep_newest(path, aside.name.removeprefix(f"{path.name}.").rpartition("-")[0])


def asides(path: Path, kind: str = "") -> list[Path]:
    """Return the files that were moved aside from this path, oldest first."""
    start = f"{path.name}.{kind}"
    names = (entry for entry in path.parent.iterdir() if entry.name.startswith(start) and entry.name != path.name)
    return sorted(entry for entry in names if not entry.name.endswith(_SIDE_FILES))


def _keep_newest(path: Path, kind: str) -> None:
    for old in asides(path, f"{kind}-")[:-KEPT_ASIDE]:
        for ending in (*_SIDE_FILES, ""):
            with suppress(OSError):  # a folder that stood there stays
                os.unlink(f"{old}{ending}")  # noqa: PTH108 - the name of a file, and an ending
