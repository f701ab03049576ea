"""Changes that users have requested: which count, and how many rows stay."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from controller.state.journal import Journal
from controller.state.user_change_table import KEPT_S

NOW_S = 1_700_000_000.0
DAY_S = 86400.0


def test_the_rows_of_an_hour_stay_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        changes = journal.user_changes
        # Given users who change jobs for weeks, on a clock that begins months too late and is then set right
        for turn in range(3):
            for number in range(500):
                late_s = 0.0 if turn == 2 else (90 - 40 * turn) * DAY_S
                changes.add(number % 5, NOW_S + late_s + number * KEPT_S / 10, "preempt", str(number))
        rows = journal._file.read("SELECT COUNT(*) FROM user_change")[0][0]
        end_s = NOW_S + 499 * KEPT_S / 10

        assert rows <= 22
        assert 1 <= len(changes.times_s(1, end_s - KEPT_S)) <= 3


def test_a_change_from_months_later_does_not_count(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.user_changes.add(1, NOW_S, "preempt", "7")
        assert journal.user_changes.times_s(1, NOW_S - 90 * DAY_S - KEPT_S) == []
        assert journal.user_changes.times_s(1, NOW_S - 60.0 - KEPT_S) == [NOW_S]
