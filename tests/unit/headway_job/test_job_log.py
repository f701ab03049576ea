"""A log that takes no lines holds nothing up: a pipe that is not read stands for a disk that hangs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import headway_job
import pytest
from headway_job import job_log
from headway_job.checkpoints.ranks.pause import PauseControl, SaveOutcome
from headway_job.checkpoints.ranks.save_agreement import RankLeft
from headway_job.hook.save_requests import SaveRequests
from headway_job.job_log import LineWriter

JOBSIDE = Path(__file__).resolve().parents[3] / "headway_job" / "src"
ENV = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {"PYTHONPATH": str(JOBSIDE)}
"""Environment of Python programs with headway_job, which write as Python does by itself."""


class HangingLog:
    """A stream, or a handler of logging, that takes no line before `go_on` is set."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        """A line is about to be written."""
        self.go_on = threading.Event()
        self.lines: list[str] = []
        self.taken = threading.Semaphore(0)

    def write(self, text: str) -> None:
        self.begun.set()
        self.go_on.wait()
        self.lines.append(text)
        self.taken.release()

    def flush(self) -> None:
        """Do nothing."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingLog]:
    log = HangingLog()
    monkeypatch.setattr(job_log, "_writer", LineWriter(0.01))
    yield log
    log.go_on.set()


@pytest.mark.timeout(150)
def test_a_save_is_answered_and_the_training_goes_on_while_the_log_hangs(
    log: HangingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", log)
    requests = SaveRequests(keep_client_running=lambda: None)
    requests.set_connected(connected=True)
    run = PauseControl(requests, 0, 1, lambda: None)
    run.register(20)
    requests.receive_save("p1.1", 30.0, "an operator")
    run.save_began(40, *run.terms())

    run.save_ended(SaveOutcome(40, ""))

    found = requests.answer()
    assert found is not None
    assert (found["id"], found["complete"]) == ("p1.1", True)
    requests.receive_go_on("p1.1")
    run.pause_training()
    assert log.lines == []

    log.go_on.set()
    assert log.taken.acquire(timeout=60.0)
    assert log.taken.acquire(timeout=60.0)
    assert [line.split(" ", 2)[1] for line in log.lines] == ["step", "the"]  # in their order


@pytest.mark.timeout(150)
def test_handlers_of_logging_that_hang_hold_nothing_up_and_get_the_records(
    log: HangingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: log.write(f"{record.funcName} {record.getMessage()}"))
    logger = logging.getLogger("headway_job")
    logger.addHandler(handler)
    try:
        job_log.log(logging.DEBUG, "not enabled %s", "here")
        job_log.log(logging.WARNING, "step %d failed: %s", 7, ValueError("no space"))
        assert log.lines == []
        log.go_on.set()
        assert log.taken.acquire(timeout=60.0)
    finally:
        logger.removeHandler(handler)
    assert log.lines == [
        "test_handlers_of_logging_that_hang_hold_nothing_up_and_get_the_records step 7 failed: no space"
    ]


@pytest.mark.timeout(300)
def test_a_state_that_cannot_be_copied_is_reported_while_handlers_hang(
    log: HangingLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other ranks wait for this one's answer."""
    torch = pytest.importorskip("torch")
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)
    run = headway_job.checkpoint(str(tmp_path / "run"), model=torch.nn.Linear(1, 1))
    monkeypatch.setattr(run._objects, "copy", lambda _rank: 1 // 0)
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: log.write(record.getMessage()))
    logger = logging.getLogger("headway_job")
    logger.addHandler(handler)
    try:
        run.save()
        run.step(0)
        run._stop_saving(RankLeft("rank 1 has left"))
        run.close()
        assert log.lines == []
        log.go_on.set()
        for _ in range(3):
            assert log.taken.acquire(timeout=60.0)
    finally:
        logger.removeHandler(handler)
    assert log.lines[0].startswith("There is no checkpoint of step 1, as the state could not be copied")
    assert log.lines[-1].startswith("After step 1 this run saves no more checkpoints: rank 1 has left")


@pytest.mark.timeout(150)
def test_lines_beyond_a_number_are_left_out_while_it_hangs_and_later_ones_are_written(
    log: HangingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", log)
    job_log.write_line("0")
    assert log.begun.wait(60.0)  # this line waits no more, and each of the others does
    for number in range(1, 1000):
        job_log.write_line(f"{number}")
    log.go_on.set()
    first = 1 + job_log._MOST_WAITING
    for _ in range(first):
        assert log.taken.acquire(timeout=60.0)
    assert log.lines == [f"headway: {number}\n" for number in range(first)]
    while len(log.lines) == first:  # the thread that has written them may still be ending
        job_log.write_line("later")
    assert log.lines[-1] == "headway: later\n"


def test_a_line_is_there_when_the_call_returns(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "_writer", LineWriter(60.0))
    for number in range(20):
        job_log.write_line(f"{number}")
        assert capfd.readouterr().err == f"headway: {number}\n"


def test_one_line_that_cannot_be_written_costs_no_other(log: HangingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.go_on.set()
    monkeypatch.setattr(job_log, "_writer", LineWriter(60.0))
    monkeypatch.setattr(sys, "stderr", None)
    job_log.write_line("lost")
    monkeypatch.setattr(sys, "stderr", log)
    job_log.write_line("kept")
    assert log.taken.acquire(timeout=60.0)
    assert log.lines == ["headway: kept\n"]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_lines_are_written_by_the_caller_where_no_thread_can_start(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(_thread: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(job_log, "_writer", LineWriter(60.0))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fails)
        job_log.write_line("first")
        job_log._writer.put(fails)  # type: ignore[arg-type]
        job_log.write_line("second")
        assert capfd.readouterr().err == "headway: first\nheadway: second\n"
    job_log.write_line("third")
    assert capfd.readouterr().err == "headway: third\n"


_CHILD = """
import os, sys, threading
from headway_job import job_log
job_log._writer._most_wait_s = 60.0
job_log._writer._lock.acquire()  # as if another thread had been about to write
if os.fork():
    os.wait()
else:
    job_log.write_line("of the child")
    os._exit(0)
"""


def test_a_forked_child_writes_although_the_lock_was_held() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], env=ENV, capture_output=True, text=True, timeout=150.0, check=True
    )
    assert done.stderr == "headway: of the child\n"


_PIPE = """
import sys
from headway_job import job_log
job_log.write_line("x")
job_log.write_line("y")
print("ended")
"""


def test_a_program_ends_well_while_its_log_takes_nothing() -> None:
    """Python waits for standard error at its end, and for ever when a thread that hangs has its lock."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        while True:  # fill the pipe
            try:
                os.write(writing, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(writing, True)
        done = subprocess.run(
            [sys.executable, "-c", _PIPE],
            env=ENV, stdout=subprocess.PIPE, stderr=writing, text=True, timeout=150.0, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
        os.close(reading)
    assert (done.returncode, done.stdout) == (0, "ended\n")


@pytest.mark.parametrize("time_s", [1e18, float("inf"), float("nan")])
def test_a_damaged_time_is_left_out(time_s: float) -> None:
    line = job_log.stopped_line(7, 1, "for another job", time_s)
    assert line == "start 1 of the job saved step 7, so that the scheduler could stop it: for another job"
