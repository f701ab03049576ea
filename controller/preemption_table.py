"""The journal's table of preemptions: one row each, written again with every change of its stage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from typing import Any

from controller.preemption import Cause, Elsewhere, Preemption, Stage, Way

PREEMPTION_SCHEMA = """
CREATE TABLE IF NOT EXISTS preemption (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, raw_id INTEGER NOT NULL,
    submit_time_s INTEGER NOT NULL, restarts INTEGER NOT NULL, cause TEXT NOT NULL, why TEXT NOT NULL, way TEXT NOT NULL,
    force INTEGER NOT NULL, nodes TEXT NOT NULL, elsewhere TEXT NOT NULL, within_s REAL NOT NULL, stage TEXT NOT NULL,
    asked_s REAL NOT NULL, saved_s REAL, stopped_s REAL, started_s REAL, resumed_s REAL, ended_s REAL, step INTEGER,
    attempt INTEGER NOT NULL, problem TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS preemption_open ON preemption (number) WHERE ended_s IS NULL;
CREATE INDEX IF NOT EXISTS preemption_job ON preemption (raw_id, number);
CREATE INDEX IF NOT EXISTS preemption_asked ON preemption (asked_s);
"""
_COLUMNS = tuple(field.name for field in fields(Preemption))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM preemption"  # noqa: S608 - names of our own

Transaction = Callable[[], AbstractContextManager[sqlite3.Connection]]


class PreemptionTable:
    """Rows by number. Invariant: a number is given once, and never again after its row was dropped."""

    def __init__(self, db: sqlite3.Connection, transaction: Transaction) -> None:
        """`transaction` begins an atomic write, and turns the errors of SQLite into JournalError."""
        self._db = db
        self._transaction = transaction

    def add(self, preemption: Preemption) -> Preemption:
        """Keep a new one. Returns it with its number; the one that it came with does not count."""
        values = _values(preemption)[1:]
        marks = ", ".join("?" * len(values))
        with self._transaction() as db:
            cursor = db.execute(
                f"INSERT INTO preemption ({', '.join(_COLUMNS[1:])}) VALUES ({marks})",  # noqa: S608 - names of our own
                values,
            )
        return replace(preemption, number=int(cursor.lastrowid or 0))

    def save(self, preemption: Preemption) -> None:
        """Write it as it is now."""
        changes = ", ".join(f"{name} = ?" for name in _COLUMNS[1:])
        with self._transaction() as db:
            db.execute(
                f"UPDATE preemption SET {changes} WHERE number = ?",  # noqa: S608 - names of our own
                (*_values(preemption)[1:], preemption.number),
            )

    def open(self) -> list[Preemption]:
        """Those that have not ended, oldest first."""
        return self._read("WHERE ended_s IS NULL ORDER BY number", ())

    def find(self, number: int) -> Preemption | None:
        """The one of that number."""
        return next(iter(self._read("WHERE number = ?", (number,))), None)

    def of_job(self, raw_id: int, limit: int) -> list[Preemption]:
        """The newest of one job, newest first."""
        return self._read("WHERE raw_id = ? ORDER BY number DESC LIMIT ?", (raw_id, limit))

    def newest(self, limit: int) -> list[Preemption]:
        """The newest of all, newest first."""
        return self._read("ORDER BY number DESC LIMIT ?", (limit,))

    def since(self, time_s: float) -> list[Preemption]:
        """Those that were asked for since then, oldest first."""
        return self._read("WHERE asked_s >= ? ORDER BY number", (time_s,))

    def _read(self, where: str, values: tuple[object, ...]) -> list[Preemption]:
        return [_preemption(row) for row in self._db.execute(f"{_SELECT} {where}", values)]


def prune_preemptions(db: sqlite3.Connection, older_than_s: float) -> None:
    """Drop those that ended before that time."""
    db.execute("DELETE FROM preemption WHERE ended_s < ?", (older_than_s,))


def elsewhere_to_json(elsewhere: Elsewhere) -> str:
    """As text; `elsewhere_from_json` is its inverse."""
    return json.dumps({"avoid": sorted(elsewhere.avoid), "only": sorted(elsewhere.only), "gpus": elsewhere.gpus})


def elsewhere_from_json(text: str) -> Elsewhere:
    """From text that `elsewhere_to_json` made."""
    values = json.loads(text)
    return Elsewhere(frozenset(values["avoid"]), frozenset(values["only"]), values["gpus"])


def _values(preemption: Preemption) -> tuple[object, ...]:
    written = {"nodes": json.dumps(preemption.nodes), "elsewhere": elsewhere_to_json(preemption.elsewhere)}
    return tuple(written.get(name, getattr(preemption, name)) for name in _COLUMNS)


def _preemption(row: tuple[Any, ...]) -> Preemption:
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    return Preemption(
        **{
            **values,
            "cause": Cause(values["cause"]),
            "way": Way(values["way"]),
            "force": bool(values["force"]),
            "nodes": tuple(json.loads(values["nodes"])),
            "elsewhere": elsewhere_from_json(values["elsewhere"]),
            "stage": Stage(values["stage"]),
        }
    )
