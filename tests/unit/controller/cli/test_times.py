"""Times as users give them."""

from __future__ import annotations

import time

import pytest
import typer

from controller.cli.commands.times import time_of

NOW = time.mktime((2026, 3, 5, 12, 30, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "before_s"),
    [
        ("90s", 90.0),
        ("15m", 900.0),
        ("15 min", 900.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        (" 2d ", 172_800.0),
        ("0s", 0.0),
    ],
)
def test_how_long_ago(text: str, before_s: float) -> None:
    assert time_of(text, NOW) == NOW - before_s


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("2026-03-05 12:30:00", (2026, 3, 5, 12, 30, 0)),
        ("2026-03-04T08:00", (2026, 3, 4, 8, 0, 0)),
        ("2026-03-04", (2026, 3, 4, 0, 0, 0)),
        ("09:15", (2026, 3, 5, 9, 15, 0)),
        ("23:59:58", (2026, 3, 5, 23, 59, 58)),
    ],
)
def test_local_times(text: str, local: tuple[int, ...]) -> None:
    assert time.localtime(time_of(text, NOW))[:6] == local


@pytest.mark.parametrize("text", ["", "1", "yesterday", "-1h", "25:00", "1e9999h", "2026-13-01", "9999999999h", "1w"])
def test_what_is_no_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        time_of(text, NOW)
