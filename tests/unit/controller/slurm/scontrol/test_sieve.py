"""The watchdog's reading of a long queue keeps every job of the watchdog's, and makes none out of a user's text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.slurm.left_jobs import is_left, is_requeued_with_nodes
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.scontrol.incremental import JobReading, JobTable
from controller.slurm.scontrol.sieve import MarkedJobs
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, job_line

_TEXTS = [
    "",
    "x",
    HOLD_MARK,
    f"{HOLD_MARK} {USER_HOLD_MARK}",
    PIN_MARK,
    f"a\n{HOLD_MARK}",
    "a\nb",
    "a\nJobId=3 JobName=y",
]


def sieved(text: bytes, sieve: MarkedJobs, step: int) -> bytes:
    pieces = [sieve.feed(text[begin : begin + step]) for begin in range(0, len(text), step)]
    return b"".join([*pieces, sieve.end()])


def ours(reading: JobReading) -> list[str]:
    """Ids of the jobs that a watchdog would look at."""
    return [job.key.job_id for job in reading.jobs if is_left(job) or is_requeued_with_nodes(job)]


@st.composite
def queues(draw: st.DrawFn) -> bytes:
    lines = []
    for raw in range(1, draw(st.integers(1, 12))):
        state = RUNNING if draw(st.booleans()) else {"priority": draw(st.sampled_from(["0", "7"]))}
        state = {**state, "restarts": draw(st.sampled_from("01")), "req_nodes": draw(st.sampled_from(["(null)", "n1"]))}
        texts = {name: draw(st.sampled_from(_TEXTS)) for name in ("admin_comment", "comment", "name")}
        lines.append(job_line(raw=str(raw), **state, **texts))
    return "".join(f"{line}\n" for line in lines).encode()


@settings(max_examples=200, deadline=None)
@given(queues(), st.integers(1, 5000))
def test_jobs_of_the_watchdog_are_read_as_from_the_whole_text(text: bytes, step: int) -> None:
    whole, rest = JobTable(CLOCK).update(text), JobTable(CLOCK).update(sieved(text, MarkedJobs(CLOCK), step))
    assert set(ours(rest)) == set(ours(whole))
    assert rest.contested >= whole.contested, "jobs in doubt are read one by one"
    others = {job.key.job_id for job in whole.jobs} - set(ours(whole))
    assert {str(job) for job in rest.contested - whole.contested} <= others, (
        "of records that are dropped, a text may name the id"
    )


def test_other_jobs_are_left_out() -> None:
    lines = [job_line(raw=str(raw), admin_comment=HOLD_MARK if raw % 50 == 0 else "") for raw in range(1, 200)]
    text = "".join(f"{line}\n" for line in lines).encode()
    assert sieved(text, MarkedJobs(CLOCK), 1000) == "".join(f"{lines[at]}\n" for at in (49, 99, 149)).encode()


_REQUEUED = {"priority": "7", "restarts": "1", "req_nodes": "n1"}


def test_jobs_that_were_requeued_with_nodes_are_kept() -> None:
    others = [
        {"priority": "0"},
        {"restarts": "0"},
        {"req_nodes": "(null)"},
        {"state": "COMPLETED"},
        {"command": "x" * 20_000},
    ]
    lines = [job_line(raw=str(raw), **{**_REQUEUED, **other}) for raw, other in enumerate([*others, {}, *others], 10)]
    text = "".join(f"{line}\n" for line in lines).encode()
    assert sieved(text, MarkedJobs(CLOCK), 1000) == f"{lines[len(others)]}\n".encode()


def test_jobs_that_were_requeued_with_nodes_take_no_room_from_marked_ones() -> None:
    requeued = [f"{job_line(raw=str(raw), **_REQUEUED)}\n" for raw in range(10, 50)]
    marked = [f"{job_line(raw=str(raw), admin_comment=HOLD_MARK)}\n" for raw in range(50, 90)]
    sieve = MarkedJobs(CLOCK, len("".join(marked)), most_requeued_bytes=len(requeued[0]) * 3)
    reading = JobTable(CLOCK).update(sieved("".join([*requeued, *marked]).encode(), sieve, 700))
    assert sieve.left_out == 0
    found = {int(job.key.job_id) for job in reading.jobs}
    assert found >= set(range(50, 90))
    assert len(found) == 43


def test_of_too_many_marked_jobs_chance_picks_some() -> None:
    lines = [f"{job_line(raw=str(raw), admin_comment=HOLD_MARK)}\n" for raw in range(10, 20)]
    text = "".join(lines).encode()
    picked: set[str] = set()
    for seed in range(30):
        random.seed(seed)
        sieve = MarkedJobs(CLOCK, most_bytes=len(lines[0]) * 3)
        reading = JobTable(CLOCK).update(sieved(text, sieve, 700))
        assert (len(reading.jobs), sieve.left_out) == (3, 7)
        picked.update(ours(reading))
    assert picked == {str(raw) for raw in range(10, 20)}, "none is left out in every check, wherever it stands"


@pytest.mark.parametrize(
    "others",
    [
        {"state": "COMPLETED", "priority": "0", "admin_comment": HOLD_MARK},
        {**RUNNING, "admin_comment": HOLD_MARK},
        {"admin_comment": USER_HOLD_MARK, "workdir": f"/home/{HOLD_MARK}"},
        {"admin_comment": PIN_MARK, "workdir": f"/home/{HOLD_MARK}"},
        {"admin_comment": HOLD_MARK, "command": "x" * 20_000},
    ],
)
def test_jobs_that_the_watchdog_does_not_change_take_no_room(others: dict[str, str]) -> None:
    lines = [job_line(raw=str(raw), **others) for raw in range(10, 50)] + [job_line(raw="90", admin_comment=HOLD_MARK)]
    sieve = MarkedJobs(CLOCK, most_bytes=3000)
    reading = JobTable(CLOCK).update(sieved("".join(f"{line}\n" for line in lines).encode(), sieve, 5000))
    assert (ours(reading), sieve.left_out) == (["90"], 0)
    assert reading.contested == (set(range(10, 50)) if "command" in others else set()), (
        "long records are read by their ids"
    )


@pytest.mark.parametrize(
    "text", ["\n", "\n" + "y" * 250, "\nNodeName=n1", "\nend0123456789abcdef", "\nJobId=77 x", "\nJobId=x"]
)
@pytest.mark.parametrize("field", ["name", "command"])
def test_of_thousands_of_line_breaks_little_is_kept(text: str, field: str) -> None:
    # Given texts of line breaks, also such as look like the end of the jobs, before a marked job that is next to none
    times = 5000 if field == "command" else 1000 // len(text)  # Slurm takes names of 1,024 bytes
    lines = [job_line(raw="5", **{field: "a" + text * times}), *(job_line(raw=str(raw)) for raw in (6, 7))]
    lines.append(job_line(raw="90", admin_comment=HOLD_MARK))
    begin, behind = (
        b"scontrol: end0011223344556677\nscontrol: ",
        b"scontrol: end0011223344556677\nNodeName=n1 A=b\nlast",
    )
    answer = begin + "".join(f"{line}\n" for line in lines).encode() + behind
    kept = sieved(answer, MarkedJobs(CLOCK), 1000)
    # Then what is kept is small, and has all that is before and behind the jobs, the marked job, and the ids in doubt
    assert len(kept) < 10_000
    assert kept.startswith(begin)
    assert kept.endswith(f"{lines[-1]}\n".encode() + behind)
    reading = JobTable(CLOCK).update(kept[len(begin) : -len(behind)])
    assert ours(reading) == ["90"]
    assert reading.contested >= {5}


def test_a_text_at_the_end_puts_no_marked_job_in_doubt() -> None:
    lines = [job_line(raw="4", admin_comment=HOLD_MARK), job_line(raw="5"), job_line(raw="6", name="a\nb")]
    reading = JobTable(CLOCK).update(sieved("".join(f"{line}\n" for line in lines).encode(), MarkedJobs(CLOCK), 1000))
    assert (ours(reading), reading.contested) == (["4"], {5, 6})


def test_a_record_behind_thousands_of_made_up_ids_stays_in_doubt() -> None:
    # Given a text of ids that ends before a job whose own name has line breaks, as many as a name has room for
    flood = "".join(f"\nJobId={raw} x" for raw in range(1_000_000, 1_005_000))
    lines = [
        job_line(raw="5", command="a" + flood),
        job_line(raw="6", name="b" + "\nJobId=9 x" * 99),
        job_line(raw="7"),
    ]
    kept = sieved("".join(f"{line}\n" for line in lines).encode(), MarkedJobs(CLOCK), 1000)
    reading = JobTable(CLOCK).update(kept)
    assert {5, 6} <= reading.contested
    assert len(reading.contested) < 300


def test_a_mark_in_a_users_text_takes_no_room_from_marked_jobs() -> None:
    texts = [f"{job_line(raw=str(raw), name=HOLD_MARK, comment=PIN_MARK, priority='0')}\n" for raw in range(10, 20)]
    marked = f"{job_line(raw='90', admin_comment=HOLD_MARK)}\n"
    sieve = MarkedJobs(CLOCK, most_bytes=1)
    assert sieved("".join([*texts, marked]).encode(), sieve, 700) == marked.encode()
    assert sieve.left_out == 0


def test_of_jobs_in_doubt_little_is_kept() -> None:
    long = "x" * 3000
    lines = [job_line(raw=str(raw), name="a\n" + long, comment=long) for raw in range(10, 20)]
    text = "".join(f"{line}\n" for line in lines).encode()
    kept = sieved(text, MarkedJobs(CLOCK), 700)
    assert len(kept) < len(text) / 10
    assert JobTable(CLOCK).update(kept).contested == JobTable(CLOCK).update(text).contested == set(range(10, 20))


def test_lines_that_are_no_records_are_kept() -> None:
    text = b"NodeName=n1 A=b\nend0123\nscontrol: show hostnames end0123\nlast"
    assert sieved(text, MarkedJobs(CLOCK), 9) == text


def test_a_line_without_an_end_takes_no_memory_and_is_read_by_its_id() -> None:
    sieve = MarkedJobs(CLOCK)
    line = job_line(raw="5", command="x" * (5 << 20), admin_comment=HOLD_MARK).encode()
    kept = sieved(line + b"\n" + job_line(raw="6").encode() + b"\n", sieve, 1 << 18)
    assert JobTable(CLOCK).update(kept).contested == {5}
    assert len(kept) < 100
