"""Notes on jobs in the journal: what is read of rows that something else has written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from controller.slurm.model.job import JobKey
from controller.state.job_note_table import JobNote
from controller.state.journal import Journal

KEY = JobKey("7", 1_000)


@pytest.mark.parametrize(
    "waits",
    [
        "{",
        "[" * 100_000,
        "[1]",
        "7",
        '{"for GPUs": ' + "9" * 400 + "}",
        '{"for GPUs": true, "x": NaN, "y": -1, "z": "1"}',
    ],
)
def test_a_damaged_row_has_no_reasons(tmp_path: Path, waits: str) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.job_notes.save([JobNote(KEY, 1_001.0, {"for GPUs": 5.0}, 3)])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE job_note SET waits = ?", (waits,))
    (found,) = journal.job_notes.of_job("7", 0.0)
    journal.close()
    assert (found.key, dict(found.waits_s), found.steps) == (KEY, {}, 3)


def test_reasons_and_steps_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    note = JobNote(KEY, 1_001.0, {"for GPUs": 5.0, "for its begin time": 0.5}, None)
    journal.job_notes.save([note])
    assert journal.job_notes.find(KEY) == note
    journal.close()
