"""Faults of the journal's file do what their names say."""

from __future__ import annotations

from pathlib import Path

from controller.state.journal import Journal
from tests.campaign.world.journal_disk import damage_rows


def test_values_of_a_sound_journal_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    with journal._file.db as db:
        for job in range(20):
            db.execute(
                "INSERT INTO job (job_id, submit_time_s, original) VALUES (?, 1, ?)", (str(job), '{"nodes": "n[1-2]"}')
            )
    journal.close()
    assert damage_rows(path, seed=1)
    journal = Journal(path)
    originals = {row[0] for row in journal._file.db.execute("SELECT original FROM job")}
    journal.close()
    assert originals == {'{"nodes": "n[1-2]"}', '{"nodes":'}
