"""The watchdog's reading of a long queue keeps every job of the watchdog's, and makes none out of a user's text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.slurm.client import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
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
    return [
        job.key.job_id for job in reading.jobs if HOLD_MARK in job.marks or (job.held and PIN_MARK in job.admin_comment)
    ]


@st.composite
def queues(draw: st.DrawFn) -> bytes:
    lines = []
    for raw in range(1, draw(st.integers(1, 12))):
        state = RUNNING if draw(st.booleans()) else {"priority": draw(st.sampled_from(["0", "7"]))}
        texts = {name: draw(st.sampled_from(_TEXTS)) for name in ("admin_comment", "comment", "name")}
        lines.append(job_line(raw=str(raw), **state, **texts))
    return "".join(f"{line}\n" for line in lines).encode()


@settings(max_examples=200, deadline=None)
@given(queues(), st.integers(1, 5000))
def test_jobs_of_the_watchdog_are_read_as_from_the_whole_text(text: bytes, step: int) -> None:
    whole, rest = JobTable(CLOCK).update(text), JobTable(CLOCK).update(sieved(text, MarkedJobs(CLOCK), step))
    assert ours(rest) == ours(whole)
    assert rest.contested >= whole.contested, "jobs in doubt are read one by one"
    others = {job.key.job_id for job in whole.jobs} - set(ours(whole))
    assert {str(job) for job in rest.contested - whole.contested} <= others, (
        "of records that are dropped, a text may name the id"
    )


def test_other_jobs_are_left_out() -> None:
    lines = [job_line(raw=str(raw), admin_comment=HOLD_MARK if raw % 50 == 0 else "") for raw in range(1, 200)]
    text = "".join(f"{line}\n" for line in lines).encode()
    assert sieved(text, MarkedJobs(CLOCK), 1000) == "".join(f"{lines[at]}\n" for at in (49, 99, 149)).encode()


def test_too_many_marked_jobs_come_in_parts() -> None:
    lines = [f"{job_line(raw=str(raw), admin_comment=HOLD_MARK)}\n" for raw in range(10, 20)]
    sieve = MarkedJobs(CLOCK, most_bytes=len(lines[0]) * 3)
    assert sieved("".join(lines).encode(), sieve, 700) == "".join(lines[:3]).encode()
    assert sieve.left_out == 7


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


def test_a_line_without_an_end_takes_no_memory() -> None:
    sieve = MarkedJobs(CLOCK)
    piece = b"JobId=1 " + b"x" * (1 << 20)
    assert sieve.feed(piece).startswith(b"JobId=1 xx")
    assert sieve.feed(b"y\n") == b"y\n"
