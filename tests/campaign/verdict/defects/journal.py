"""Defects in what controller and watchdog do with the journal.

Each function puts one of them back for as long as its context lasts. What they do is described as in the reviews.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from controller.base.errors import JournalError
from controller.base.sqlite_file import UnusableFileError
from controller.cycle.changes import scoped
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.state.journal import Journal
from controller.state.journal_file import JournalFile
from controller.state.journal_salvage import read_originals
from tests.campaign.verdict.defects.patches import patched


def journal_of_another_version_ends_watchdog() -> AbstractContextManager[None]:
    """The watchdog needs a journal of its own version."""
    from controller.daemon.watchdog.watchdog import Watchdog
    from controller.state.journal_schema import JOURNAL

    def originals(path: Path, limit_s: float = 15.0) -> Mapping[Any, Any]:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in {0, JOURNAL.version}:
                raise TypeError("an unknown field")
        return read_originals(path, limit_s)

    return patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_of_journal", lambda self, take, without: take()),
    )


def journal_of_another_version_ends_it() -> AbstractContextManager[None]:
    """The controller ends at each start if the journal has another version."""
    from controller.state.journal_schema import JOURNAL

    real = JournalFile._open

    def open_(self: JournalFile) -> sqlite3.Connection:
        if self.path.exists():
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.path)) as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version not in {0, JOURNAL.version}:
                    raise JournalError(f"{self.path} is of version {version}")
        return real(self)

    return patched(patch.object(JournalFile, "_open", open_))


def damaged_journal_ends_it() -> AbstractContextManager[None]:
    """The controller ends at each start if the journal is damaged."""

    real = JournalFile._replaced

    def replaced(self: JournalFile, problem: UnusableFileError) -> sqlite3.Connection:
        if problem.kind == "damaged":
            raise JournalError("the journal is damaged")
        return real(self, problem)

    return patched(patch.object(JournalFile, "_replaced", replaced))


def damaged_value_ends_it() -> AbstractContextManager[None]:
    """One value of the journal that is no JSON ends the controller, again and again."""
    real = Journal.load_ledger

    def load_ledger(self: Journal) -> Any:
        ledger = real(self)
        if self._not_understood:
            raise JournalError("a value of the journal cannot be read")
        return ledger

    return patched(patch.object(Journal, "load_ledger", load_ledger))


def lost_update_on_a_journal_error() -> AbstractContextManager[None]:
    """Changes since the previous snapshot are forgotten when the journal cannot be written in that cycle."""
    real = LedgerKeeper.update

    def update(self: LedgerKeeper, snapshot: Any, settings: Any, newest_step: int | None = None) -> Any:
        try:
            return real(self, snapshot, settings, newest_step)
        except JournalError:
            self._scope = frozenset(settings.partitions)
            self.jobs, self._first = scoped(snapshot.jobs, self._scope), False
            raise

    return patched(patch.object(LedgerKeeper, "update", update))


def damaged_journal_ends_watchdog() -> AbstractContextManager[None]:
    """The watchdog needs a journal that it can read."""
    from controller.daemon.watchdog.watchdog import Watchdog

    def originals(path: Path, limit_s: float = 15.0) -> Mapping[Any, Any]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("SELECT job_id, submit_time_s, original FROM job").fetchall()
        return read_originals(path, limit_s)

    return patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_of_journal", lambda self, take, without: take()),
    )


def damaged_value_ends_watchdog() -> AbstractContextManager[None]:
    """One value of the journal that is no JSON ends the watchdog."""
    from controller.daemon.watchdog.watchdog import Watchdog

    def originals(path: Path, limit_s: float = 15.0) -> Mapping[Any, Any]:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
            for (original,) in db.execute("SELECT original FROM job WHERE original IS NOT NULL").fetchall():
                json.loads(original)
        return read_originals(path, limit_s)

    return patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_of_journal", lambda self, take, without: take()),
    )
