"""Tables of a SQLite file and their version: check a file, make its tables or migrate them, and write in transactions.

The journal and the store of profiles share it. A file of a newer version is never changed: UnusableFileError asks its owner to set
it aside.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from controller.base.sqlite_file import UnusableFileError, check, require_columns

CHECK_S = 5.0
"""Longest check of all pages when a file is opened, in seconds."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables of one version. `PRAGMA user_version` of the file has the version; 0 is a new file."""

    version: int
    statements: tuple[str, ...]
    """CREATE ... IF NOT EXISTS for every table and index. A migrated file gets those that it lacks."""
    migrations: Mapping[int, tuple[str, ...]]
    """Statements that lead from a version to the next one, in addition to `statements`."""


def split_statements(script: str) -> tuple[str, ...]:
    """Return the statements of a script that has no semicolon inside a statement."""
    return tuple(statement.strip() for statement in script.split(";") if statement.strip())


def prepare(db: sqlite3.Connection, schema: Schema, on_made: Callable[[int], None] = lambda _: None) -> None:
    """Check the file, and bring its tables to this version.

    Raises sqlite3.Error, and UnusableFileError when another file is to take the place of this one.

    `on_made` is called with the version that the file had, in the transaction that brings it to the new version.
    """
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > schema.version:
        why = f"written by a newer version of Headway (schema {version}, this one reads {schema.version})"
        raise UnusableFileError(f"schema-{version}", why)
    complaint = check(db, CHECK_S) if version >= 0 else f"its schema is {version}"
    if complaint:
        raise UnusableFileError("damaged", complaint)
    make_tables(db, schema, version, on_made)
    require_columns(db, ";".join(schema.statements))


def make_tables(
    db: sqlite3.Connection, schema: Schema, version: int, on_made: Callable[[int], None] = lambda _: None
) -> None:
    """Make all tables in a new file (version 0) or in one of an earlier version: all of them, or none."""
    with transaction(db):
        for old in range(version, schema.version) if version else ():
            for statement in schema.migrations.get(old, ()):
                db.execute(statement)
        for statement in schema.statements:
            db.execute(statement)
        on_made(version)
        db.execute(f"PRAGMA user_version = {schema.version}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write everything within the context, or nothing when an exception leaves it. Raises sqlite3.Error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise
