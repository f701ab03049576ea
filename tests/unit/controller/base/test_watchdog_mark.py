"""The mark of the watchdog's last check."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.base.watchdog_mark import MARK_FILE, is_silent, last_check_s, mark_check


def test_each_check_renews_the_mark(tmp_path: Path) -> None:
    assert last_check_s(tmp_path) == 0.0
    mark_check(tmp_path)
    os.utime(tmp_path / MARK_FILE, (5, 5))
    assert last_check_s(tmp_path) == 5.0

    mark_check(tmp_path)

    assert last_check_s(tmp_path) > 5.0
    assert [path.name for path in tmp_path.iterdir()] == [MARK_FILE]


def test_a_missing_folder_ends_no_check(tmp_path: Path) -> None:
    mark_check(tmp_path / "none")

    assert last_check_s(tmp_path / "none") == 0.0


def test_a_link_in_its_place_is_no_mark_and_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("stays")
    (tmp_path / MARK_FILE).symlink_to(other)
    assert last_check_s(tmp_path) == 0.0

    mark_check(tmp_path)

    assert last_check_s(tmp_path) > 0.0
    assert other.read_text() == "stays"


@pytest.mark.parametrize(
    ("checked_s", "uptime_s", "silent"),
    [(990.0, 900.0, False), (600.0, 900.0, True), (0.0, 900.0, True), (0.0, 200.0, False), (5000.0, 900.0, True)],
    ids=["fresh", "old", "never", "just-started", "future"],
)
def test_the_watchdog_is_silent_after_some_periods_of_its_timer(
    checked_s: float, uptime_s: float, silent: bool
) -> None:
    assert is_silent(checked_s, 1000.0, uptime_s) is silent
