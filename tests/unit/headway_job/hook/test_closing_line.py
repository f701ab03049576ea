"""The line at the end of a job's log: written where it is wanted, by one rank, and never for a program that makes no step."""

from __future__ import annotations

import re
import socket
from contextlib import suppress

import pytest
from headway_job.hook.closing_line import closing_line, duration, pace, report_lines
from headway_job.hook.step_counter import StepCounter

from nodeagent.wire import frames
from tests.unit.headway_job.agent import CONNECTED, FAST_POLLS, MODEL, Agent, Connection, Program, polite

_TRAINS = MODEL + "import time\nfor _ in range(11):\n    step()\n    time.sleep(0.02)\nprint('trained')\n"


def test_a_program_that_trains_ends_with_its_steps(agent: Agent, program: Program) -> None:
    program.environment.update(SLURM_JOB_ID="4711", SLURM_RESTART_COUNT="2", HEADWAY_REPORT="1")
    done = program.run(_TRAINS)
    agent.close()
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert re.fullmatch(
        r"headway: this run made 11 steps in [\d.]+ s, [\d.]+ steps/s \(start 3 of the job\); "
        r"`headway report 4711` has its waits, stops and contention\n",
        done.stderr,
    )


def test_what_the_controller_has_sent_stands_before_the_hint(agent: Agent, program: Program) -> None:
    def manner(connection: Connection, peer: socket.socket) -> None:
        with suppress(OSError):
            peer.send(frames.welcome(0, 1.0, 0))
            peer.send(frames.report_lines(1, ["the job waited 5 min: for GPUs"]))
            peer.send(frames.report_lines(2, ["the job waited 38 min: for\x1b GPUs", "1 stop cost 41 s:"]))
        polite(connection, peer)

    agent.manner = manner
    program.environment.update(SLURM_JOB_ID="4711", HEADWAY_REPORT="1")
    done = program.run(FAST_POLLS + _TRAINS.replace("print(", CONNECTED + "print("))
    agent.close()
    assert (done.returncode, done.stdout) == (0, "trained\n")
    first, *others = done.stderr.splitlines()
    assert first.startswith("headway: this run made 11 steps in ") and first.endswith("steps/s")
    assert others == [
        "headway: the job waited 38 min: for? GPUs",
        "headway: 1 stop cost 41 s:",
        "headway: `headway report 4711` has the rest",
    ]
    (connection,) = agent.connections
    assert connection.hello.report


def test_frames_with_other_things_than_lines_are_ignored() -> None:
    assert report_lines(["one", 2, None, "three"]) == ("one", "three")
    assert report_lines("one") == report_lines(None) == ()
    assert len(report_lines(["a line"] * 100)) == 8


@pytest.mark.parametrize("environment", [{}, {"HEADWAY_REPORT": "0"}, {"HEADWAY_REPORT": "1", "RANK": "1"}])
def test_others_write_nothing(environment: dict[str, str], agent: Agent, program: Program) -> None:
    program.environment.update(environment)
    done = program.run(_TRAINS)
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_a_program_that_fails_keeps_its_traceback_and_has_the_line(agent: Agent, program: Program) -> None:
    program.environment.update(HEADWAY_REPORT="on")
    done = program.run(_TRAINS + "raise ValueError('too large')\n")
    agent.close()
    assert done.returncode == 1
    assert "ValueError: too large" in done.stderr and "headway: this run made 11 steps" in done.stderr


def test_a_closed_standard_error_changes_nothing(agent: Agent, program: Program) -> None:
    program.environment.update(HEADWAY_REPORT="1")
    done = program.run(_TRAINS + "import sys, os\nsys.stdout.flush()\nos.close(2)\n")
    agent.close()
    assert (done.returncode, done.stdout) == (0, "trained\n")


_RANKS = """
import os, sys
import torch.multiprocessing as mp

def rank(number, port):
    import torch, torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=number, world_size=2)
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank, (port,), nprocs=2)
"""


def test_of_ranks_that_share_their_variables_one_writes(agent: Agent, program: Program) -> None:
    program.environment.update(SLURM_JOB_ID="4711", SLURM_PROCID="0", HEADWAY_REPORT="1")
    done = program.run(_RANKS)
    agent.close()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("headway: this run made 3 steps") == 1


@pytest.mark.parametrize(
    ("step_s", "text"),
    [(2e-5, "50,000 steps/s"), (0.1675, "5.97 steps/s"), (8.0, "0.125 steps/s"), (42.0, "42 s for a step")],
)
def test_paces_are_in_plain_numbers(step_s: float, text: str) -> None:
    assert pace(step_s) == text


def test_a_program_without_steps_has_no_line() -> None:
    counter = StepCounter()
    assert closing_line(counter) is None
    counter.last_step, counter.first_ns = (1, 5), 5
    assert closing_line(counter) == "this run made 1 step"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (42.0, "42 s"), (59.9, "1 min 0 s"), (725.0, "12 min 5 s"), (10_925.0, "3 h 2 min")],
)
def test_durations_are_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
