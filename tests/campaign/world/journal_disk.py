"""Faults of the file of a controller's journal: a full disk, a slow one, another version, and damage."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from controller.state.journal import Journal
from tests.campaign.world.processes import Pause, Process

_DAMAGED = {
    ("job", "job_id || submit_time_s"): ("original", "pin", "refusal", "served", "elsewhere"),
    ("preemption", "number"): ("nodes", "elsewhere", "cause", "way", "stage", "reason"),
    ("note", "name"): ("value",),
}
"""Table and what identifies its rows → columns whose values `damage_rows` cuts in half."""


def limit(journal: Journal, *, full: bool) -> None:
    """Fill the disk that holds the journal, or free it again."""
    with suppress(sqlite3.Error):
        pages = journal._file.db.execute("PRAGMA page_count").fetchone()[0]
        journal._file.db.execute(f"PRAGMA max_page_count = {pages if full else 1 << 30}")


def stand_still_at_writes(journal: Journal, process: Process, by_s: float) -> None:
    """Let the process stand still for so long at its next await after each write, as one that waits for a disk; 0: no longer.

    A SIGSTOP meanwhile has its own end.
    """
    loop = asyncio.get_running_loop()

    def seen(statement: str) -> None:
        if statement == "COMMIT" and process.alive and not process.stopped_by(Pause.DISK):
            process.stop(Pause.DISK)
            loop.call_later(by_s, process.cont, Pause.DISK)

    with suppress(sqlite3.Error):
        journal._file.db.set_trace_callback(seen if by_s else None)


def set_version(path: Path, version: int) -> None:
    """Set the schema version of a journal, as another version of Headway would have. Only while no controller runs."""
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")


def damage_rows(path: Path, seed: int) -> bool:
    """Make some values of a journal unreadable, in a file that is sound. Only while no controller runs. True if there were any."""
    chance, damaged = random.Random(seed), False
    # After `journal_damaged` even a message of SQLite need not be UTF-8.
    broken = (sqlite3.Error, UnicodeDecodeError)
    with suppress(*broken), closing(sqlite3.connect(path)) as db, db:
        db.text_factory = partial(str, encoding="utf-8", errors="replace")
        for (table, key), columns in _DAMAGED.items():
            for row, *values in db.execute(f"SELECT {key}, {', '.join(columns)} FROM {table}").fetchall():
                for column, value in zip(columns, values, strict=True):
                    if isinstance(value, str) and value and chance.random() < 0.5:
                        db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value[: len(value) // 2], row))
                        damaged = True
    return damaged
