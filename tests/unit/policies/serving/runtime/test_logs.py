"""Log lines of events that repeat themselves."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import structlog

from policies.serving.runtime.logs import Repeats, set_up_logging, short_traceback


@pytest.fixture(params=["console", "json"])
def log(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[structlog.BoundLogger, io.StringIO]]:
    """A logger as every program sets it up, and what it writes."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    set_up_logging("info", request.param)
    yield structlog.get_logger(), written
    structlog.reset_defaults()


def deep(depth: int) -> None:
    secret = "a value of a variable"
    if depth:
        deep(depth - 1)
    raise ValueError(f"{len(secret)} " + "x" * 10_000)


def test_a_traceback_is_short_and_has_no_values_of_variables(
    log: tuple[structlog.BoundLogger, io.StringIO],
) -> None:
    logger, written = log
    try:
        deep(200)
    except ValueError:
        logger.exception("failed")
    text = written.getvalue()
    assert "ValueError" in text
    assert "a value of a variable" not in text.replace('secret = "a value of a variable"', "")
    assert text.count("\n") < 70
    assert len(text) < 20_000


def test_a_repeated_failure_is_logged_as_one_traceback_and_few_lines(
    log: tuple[structlog.BoundLogger, io.StringIO],
) -> None:
    logger, written = log
    for _ in range(1000):
        try:
            deep(3)
        except ValueError:
            logger.exception("failed")
        logger.info("well")
    text = written.getvalue()
    assert text.count("Traceback (most recent call last)") == 1
    assert text.count("failed") == 10
    assert text.count("well") == 1000


def test_after_a_minute_the_log_says_how_many_lines_were_left_out() -> None:
    now_s = 0.0
    repeats, left = Repeats(lambda: now_s), []
    for _ in range(25):
        try:
            left.append(repeats(None, "error", {"event": "failed"}))
        except structlog.DropEvent:
            continue
    assert len(left) == 10
    assert repeats(None, "error", {"event": "another"}) == {"event": "another"}
    now_s = 61.0
    assert repeats(None, "error", {"event": "failed"}) == {"event": "failed", "unlogged": 15}


def written(repeats: Repeats, method: str, **event: object) -> dict[str, object] | None:
    """Return the event as it is written; None = it is left out."""
    try:
        return dict(repeats(None, method, dict(event)))
    except structlog.DropEvent:
        return None


@pytest.mark.parametrize("method", ["info", "debug"])
def test_a_job_cannot_flood_the_log(method: str) -> None:
    now_s = 0.0
    repeats = Repeats(lambda: now_s)
    left = [written(repeats, method, event="job_not_profiled", job=7, pid=pid) for pid in range(1000)]
    assert sum(line is not None for line in left) == 30
    # other jobs, and other lines, are written
    assert all(written(repeats, method, event="job_not_profiled", job=job) for job in range(100, 3000))
    assert written(repeats, method, event="preemption", job=7)
    assert all(written(repeats, method, event="cycle") for _ in range(100))
    assert len(repeats._of_jobs) <= 1024
    assert not repeats._kinds


def test_the_next_line_of_a_job_says_how_many_were_left_out() -> None:
    now_s = 0.0
    repeats = Repeats(lambda: now_s)
    for _ in range(50):
        written(repeats, "info", event="job_not_profiled", job=7)
    now_s = 61.0
    assert written(repeats, "info", event="job_not_profiled", job=7) == {
        "event": "job_not_profiled",
        "job": 7,
        "unlogged": 20,
    }


def test_any_number_of_kinds_of_failures_takes_limited_memory() -> None:
    repeats = Repeats(lambda: 0.0)
    for number in range(5000):
        repeats(None, "warning", {"event": f"kind {number}"})
    assert len(repeats._kinds) <= 1024


def test_threads_that_log_at_once_neither_fail_nor_write_more_than_is_allowed() -> None:
    repeats = Repeats(lambda: 0.0)
    for number in range(1024):
        repeats(None, "warning", {"event": f"old {number}"})

    def flood(thread: int) -> int:
        written = 0
        for number in range(4000):
            repeats(None, "warning", {"event": f"kind {thread} {number}"})
            with suppress(structlog.DropEvent):
                repeats(None, "warning", {"event": "the same"})
                written += 1
        return written

    every_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(flood, range(8))) == 10
    finally:
        sys.setswitchinterval(every_s)
    assert len(repeats._kinds) <= 1024


def test_causes_are_shown_and_a_chain_without_end_is_cut() -> None:
    error: Exception = ValueError("first")
    for number in range(200):
        try:
            raise RuntimeError(f"cause {number}") from error
        except RuntimeError as caught:
            error = caught
    text = short_traceback(error)
    assert "cause 199" in text
    assert "lines left out" in text
    assert text.count("\n") < 70


def test_json_lines_stay_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    set_up_logging("info", "json")
    try:
        structlog.get_logger().error("failed", exc_info=ValueError("oh"))
    finally:
        structlog.reset_defaults()
    (line,) = written.getvalue().splitlines()
    assert json.loads(line)["exception"] == "ValueError: oh"
