"""The audit log: what an entry has, how much one user may write, and that nothing stops it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.base.audit import UNKNOWN, AuditLog, Caller
from controller.base.clock import VirtualClock
from policies.serving.runtime.logs import set_up_logging

ANN = Caller(1001, "ann")


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_entry_says_who_requested_what_when_and_how_it_ended(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = AuditLog(clock, tmp_path / "audit.jsonl")
    log.record(
        ANN,
        "move",
        "begun as preemption 4",
        job_id="7",
        job_user="bob",
        details={"only": ("n1", "n2"), "x": "y" * 5000},
    )
    log.record(UNKNOWN, "reload", "done")
    first, second = entries(tmp_path / "audit.jsonl")
    assert (first["uid"], first["user"], first["action"], first["job_id"], first["job_user"]) == (
        1001,
        "ann",
        "move",
        "7",
        "bob",
    )
    assert first["details"] == {"only": ["n1", "n2"], "x": "y" * 1000}
    assert first["outcome"] == "begun as preemption 4"
    assert first["time_s"] == clock.now()
    assert first["time"].endswith("Z")
    assert (second["uid"], second["user"], second["details"]) == (None, "", {})


async def test_refused_requests_of_one_user_do_not_push_out_those_of_others(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = AuditLog(clock, tmp_path / "audit.jsonl")
    for number in range(500):
        log.record(ANN, "preempt", f"refused {number}", refused=True)
    log.record(Caller(1002, "bob"), "preempt", "refused", refused=True)
    log.record(ANN, "preempt", "begun")  # what is not refused is always recorded
    assert [entry["user"] for entry in entries(tmp_path / "audit.jsonl")] == ["ann"] * 10 + ["bob", "ann"]
    await clock.advance(61.0)
    log.record(ANN, "preempt", "refused again", refused=True)
    last = entries(tmp_path / "audit.jsonl")[-1]
    assert (last["outcome"], last["left_out"]) == ("refused again", 490)


def test_the_log_line_is_written_at_every_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import structlog

    try:
        set_up_logging("error", "json")
        AuditLog(VirtualClock(), tmp_path / "nowhere" / "audit.jsonl").record(ANN, "preempt", "begun", job_id="7")
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    finally:
        structlog.reset_defaults()
    assert [line["event"] for line in lines] == ["line_not_written", "audit"]
    assert (lines[1]["user"], lines[1]["action"], lines[1]["job_id"], lines[1]["outcome"]) == (
        "ann",
        "preempt",
        "7",
        "begun",
    )


def test_a_problem_of_the_file_is_a_sentence_until_it_is_over(tmp_path: Path) -> None:
    log = AuditLog(VirtualClock(), tmp_path / "sub" / "audit.jsonl")
    assert log.trouble == ""
    log.record(ANN, "preempt", "begun")
    assert log.trouble.endswith("sub/audit.jsonl: No such file or directory; requests are in the log only")
    (tmp_path / "sub").mkdir()
    log.record(ANN, "preempt", "begun")
    assert log.trouble == ""
