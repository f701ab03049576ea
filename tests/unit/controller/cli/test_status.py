"""Lines of `headway status`."""

from __future__ import annotations

import time

import pytest

from controller.cli.render.status import status_colours, status_lines
from protos.headway.v1 import admin_pb2 as pb


@pytest.mark.parametrize(
    ("age_s", "silent", "begin", "colour"),
    [
        (1210.0, False, "checked 20 min ago", ""),
        (7200.0, True, "checked 2 h ago, SILENT", "red"),
        (None, True, "has not checked, SILENT", "red"),
        (None, False, "", ""),
    ],
    ids=["checks", "silent", "never", "not-needed"],
)
def test_the_watchdog_has_a_line_where_one_is_needed(
    age_s: float | None, silent: bool, begin: str, colour: str
) -> None:
    checked_s = 0.0 if age_s is None else time.time() - age_s
    status = pb.Status(watchdog_time_s=checked_s, watchdog_silent=silent)

    line = dict(status_lines(status)).get("watchdog", "")

    assert line.startswith(begin) and bool(line) is bool(begin)
    assert status_colours(status)["watchdog"] == colour


def test_the_time_of_the_last_cycle_is_that_of_its_reading_and_its_plan() -> None:
    line = dict(status_lines(pb.Status(snapshot_read_s=0.04, plan_s=0.012)))["decisions"]

    assert line.endswith("; last cycle 52 ms")
    assert "cycle" not in dict(status_lines(pb.Status(snapshot_read_s=0.04)))["decisions"]


def test_what_was_left_out_has_a_line_only_if_there_is_some() -> None:
    parts = [pb.LeftOut(part="roles of jobs", errors=1), pb.LeftOut(part="starts", errors=3)]

    line = dict(status_lines(pb.Status(left_out=parts)))["left out"]

    assert line.startswith(
        "4 unexpected errors, each of which left out a job, node or row: starts (3), roles of jobs (1);"
    )
    assert "left_out" in line
    assert "left out" not in dict(status_lines(pb.Status()))
