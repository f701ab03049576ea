"""A rank that cannot continue stops no other rank, and no process waits for it forever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.headway_job.checkpoints.conftest import JOBSIDE, ROOT, ForkServer
from tests.unit.headway_job.checkpoints.test_resume import KILLED, checkpoints

STEPS = 40
WAYS = ["raises", "ends", "is killed", "loses its connections", "cannot meet", "is silent"]


@pytest.mark.parametrize("how", WAYS)
def test_a_rank_that_leaves_stops_no_other_and_saved_checkpoints_stay(
    fork_server: ForkServer, folder: Path, how: str
) -> None:
    ended = fork_server.run("ranks.lost_ranks.part", 3, folder=folder, how=how, steps=STEPS)

    assert (
        ended.ends[2] == (KILLED if how == "is killed" else 0) or how == "loses its connections"
    )  # in its own barrier
    for rank in (0, 1):
        assert ended.reported("steps", rank) == STEPS, ended.logs[rank]
        assert ended.reported("closed", rank)
        assert "this run saves no more checkpoints" in ended.logs[rank]
        assert ended.reported("saved", rank) >= 2
    newest = int(checkpoints(folder)[-1].name.split("-")[1])
    assert newest >= max(ended.reported("saved", rank) for rank in (0, 1))
    assert fork_server.run("restored", 2, folder=folder).reported("start") == newest < STEPS


def test_a_rank_that_is_late_at_the_end_is_not_waited_for_forever(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("ranks.lost_ranks.late", 2, folder=folder)

    assert ended.ends == [0, 0], ended.logs
    assert "the other ranks did not reach this point within" in ended.logs[0]
    assert "this run saves no more checkpoints" in ended.logs[1]
    assert ended.reported("saved", 0) == ended.reported("saved", 1) >= 2


def test_a_rank_that_raises_after_the_last_step_is_not_waited_for_at_the_end(
    fork_server: ForkServer, folder: Path
) -> None:
    ended = fork_server.run("ranks.lost_ranks.raises_last", 2, folder=folder)

    assert ended.ends == [0, 0], ended.logs
    assert "this run saves no more checkpoints: another rank has ended" in ended.logs[0]
    assert [ended.reported("saved", rank) for rank in (0, 1)] == [2, 2]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_thread_that_cannot_be_started_fails_that_save_on_all_ranks(
    fork_server: ForkServer, folder: Path, rank: int
) -> None:
    ended = fork_server.run("ranks.lost_ranks.no_thread", 2, folder=folder, rank=rank)

    assert ended.ends == [0, 0], ended.logs
    for each in (0, 1):
        assert [row["saved"] for row in ended.rows[each] if "saved" in row] == [2, 2, 6]
    problems = [[row["problem"] for row in ended.rows[each] if "problem" in row] for each in (0, 1)]
    assert problems[rank] == ["could not begin to write: can't start new thread", ""]
    assert problems[1 - rank] == [f"rank {rank} could not write", ""]


def test_an_error_of_the_programs_handler_inside_run_step_is_passed_on(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("ranks.lost_ranks.interrupted", 2, folder=folder)

    assert ended.ends == [0, 0], ended.logs
    assert [ended.reported("raised", rank) for rank in (0, 1)] == [0, 1]
    assert [ended.reported("steps", rank) for rank in (0, 1)] == [24, 24]
    assert "MistakeError was raised" in ended.logs[1]
    assert "another rank has ended, or can save no more" in ended.logs[0]


@pytest.fixture
def pair(tmp_path: Path, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Return a list for two processes that the test starts, and kill them in the end."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "writes", "ends"])
def test_no_operation_in_progress_delays_the_end_of_a_process(
    pair: list[subprocess.Popen[str]], tmp_path: Path, folder: Path, how: str
) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{JOBSIDE}",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    for rank in (0, 1):
        argv = [
            sys.executable,
            "-m",
            "tests.unit.headway_job.checkpoints.ranks.process_end",
            str(rank),
            str(tmp_path / "meeting"),
        ]
        pair.append(subprocess.Popen([*argv, str(folder), how], env=env, cwd=ROOT, text=True, stderr=subprocess.PIPE))

    _, log = pair[0].communicate(timeout=60)

    assert pair[0].returncode == (0 if how == "ends" else 1), (
        log
    )  # and was not ended by the alarm for a blocked process
    assert ("a mistake of the script's" in log) == (how != "ends")
    assert ("will not be complete" in log) == (how == "writes")
    assert pair[1].poll() is None
    assert [int(path.name.split("-")[1]) for path in checkpoints(folder)] == [2]
