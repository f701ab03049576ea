"""The event log: what is kept, what a restart keeps, and what listeners get."""

from __future__ import annotations

import json
from pathlib import Path

from controller.base.clock import VirtualClock
from controller.base.events import EventLog, Wanted, events_file


async def test_a_restarted_controller_knows_the_former_events(tmp_path: Path) -> None:
    path, clock = tmp_path / "events.jsonl", VirtualClock()
    log = EventLog(clock, events_file(path))
    log.add("placed", "7", "n1:8 by srtf")
    await clock.advance(10.0)
    log.add("started", "7_1", "n1:8")
    again = EventLog(clock, events_file(path))
    assert again.recent() == log.recent()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_events_are_chosen_by_time_and_by_job(tmp_path: Path) -> None:
    clock = VirtualClock()
    log, begun_s = EventLog(clock), clock.now()
    for job_id in ("7", "7_1", "71", ""):
        log.add("started", job_id, f"job {job_id}")
        await clock.advance(10.0)

    def chosen(**wanted: float | str) -> list[str]:
        return [event.job_id for event in log.past(Wanted(**wanted))]  # type: ignore[arg-type]

    assert chosen() == ["7", "7_1", "71", ""]
    assert chosen(job_id="7") == ["7", "7_1"]
    assert chosen(job_id="7_1") == ["7_1"]
    assert chosen(since_s=begun_s + 10.0) == ["7_1", "71", ""]
    assert chosen(since_s=begun_s + 10.0, until_s=begun_s + 20.0) == ["7_1"]


def test_memory_is_bounded_and_the_newest_events_stay() -> None:
    log = EventLog(VirtualClock(), kept=100)
    for number in range(250):
        log.add("placed", str(number), "")
    assert [event.job_id for event in log.past(Wanted())] == [str(number) for number in range(150, 250)]


def test_lines_that_are_no_events_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    good = {"time_s": 1, "kind": "placed", "job_id": "7", "text": "n1"}
    bad = [
        {**good, "text": 5},
        {**good, "time_s": "x"},
        {**good, "time_s": 10**400},
        {**good, "time_s": True},
        [1],
        "x",
        {},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in (*bad, good)) + "[" * 100_000 + "\n\x00\xff{")
    (found,) = EventLog(VirtualClock(), events_file(path)).recent()
    assert (found.time_s, found.kind, found.text) == (1.0, "placed", "n1")


def test_events_that_cannot_be_written_are_known_and_told(tmp_path: Path) -> None:
    log = EventLog(VirtualClock(), events_file(tmp_path / "nowhere" / "events.jsonl"))
    log.add("placed", "7", "n1")
    assert [event.job_id for event in log.recent()] == ["7"]
    assert log.trouble.endswith("events.jsonl: No such file or directory; a restart forgets them")


def test_events_name_the_jobs_user_also_after_a_restart(tmp_path: Path) -> None:
    path, clock = tmp_path / "events.jsonl", VirtualClock()
    readings: list[int] = []

    def users() -> dict[str, str]:
        readings.append(1)
        return {"7": "ann"}

    log = EventLog(clock, events_file(path))
    log.add("placed", "7", "before anything is known")
    log.know(users)
    for job_id in ("", "7", "8", "7"):
        log.add("started", job_id, "")
    found = [(event.job_id, event.user) for event in EventLog(clock, events_file(path)).recent()]
    assert found == [("7", ""), ("", ""), ("7", "ann"), ("8", ""), ("7", "ann")]
    assert len(readings) == 1
    # and a file of an earlier version, or a wrong one, costs the user alone
    old = {"time_s": 1, "kind": "placed", "job_id": "7", "text": "n1"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (old, {**old, "user": 5})))
    assert [event.user for event in EventLog(clock, events_file(path)).recent()] == ["", ""]
