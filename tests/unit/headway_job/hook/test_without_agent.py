"""Scripts with the three lines of a checkpoint do not depend on an agent: there is none, or it does not answer."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.headway_job.agent import JOBSIDE, SOCKETS, Agent, Connection, Program
from tests.unit.headway_job.torch_server import ForkedProgram, TorchServer

THREE_LINES = (
    SOCKETS
    + """
import eager_torch, headway_job, torch
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = headway_job.checkpoint("kept", model=model, optimizer=optimizer, every_steps=5)
print("from", run.start)
for step in run.steps(run.start + 10):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
import sys
process = sys.modules.get("headway_job.hook.process")
print("began" if process and process._hook else "did not begin", "saved", run.saved_step)
"""
)


def twice(program: Program) -> list[str]:
    """Return what a job prints in its first run and in the run after a requeue."""
    printed: list[str] = []
    for restored in (r"", r"headway: restored \S*/kept/step-000000010-0002: 10 steps are done\n"):
        done = program.run(THREE_LINES)
        assert done.returncode == 0
        assert re.fullmatch(restored, done.stderr)
        printed += done.stdout.splitlines()
    return printed


def trained(how: str) -> list[str]:
    return ["from 0", f"{how} saved 10", "from 10", f"{how} saved 20"]


@pytest.mark.parametrize("environment", [{}, {"HEADWAY_PROFILE": "off"}])
def test_without_an_agent_or_with_headway_off_nothing_begins(
    agent: Agent, forked: Program, environment: dict[str, str]
) -> None:
    """On a laptop or a login node, in a job without GPUs, or in a job whose user does not want to be measured."""
    if "HEADWAY_PROFILE" not in environment:
        del forked.environment["HEADWAY_JOB_SOCKET"]
    forked.environment.update(environment)

    assert twice(forked) == trained("did not begin")
    agent.close()
    assert agent.connections == []


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    """Create the file of a socket without a listener, as a killed agent leaves it."""
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound:
        bound.bind(str(path))
    yield path
    path.unlink()


@pytest.mark.parametrize("there", ["no file", "a dead socket"])
def test_if_no_agent_listens_the_job_trains_and_is_restored(
    tmp_path: Path, torch_server: TorchServer, dead: Path, there: str
) -> None:
    program = ForkedProgram(torch_server, tmp_path, None)
    if there == "a dead socket":
        program.environment["HEADWAY_JOB_SOCKET"] = str(dead)

    assert twice(program) == trained("began")


def test_an_agent_that_never_answers_delays_no_job(tmp_path: Path, torch_server: TorchServer) -> None:
    over = threading.Event()

    def hung(_connection: Connection, _peer: socket.socket) -> None:
        over.wait(100.0)

    agent = Agent(tmp_path, hung)
    try:
        assert twice(ForkedProgram(torch_server, tmp_path, agent)) == trained("began")
    finally:
        over.set()
        agent.close()


def test_an_agent_with_a_full_queue_delays_no_job(tmp_path: Path, torch_server: TorchServer) -> None:
    """It accepts nothing: the kernel's queue for it has no room."""
    path = tmp_path / "full.sock"
    waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) for _ in range(8)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(1)
        refused = [one.connect_ex(str(path)) for one in waiting]
        assert any(refused)
        program = ForkedProgram(torch_server, tmp_path, None)
        program.environment["HEADWAY_JOB_SOCKET"] = str(path)
        assert twice(program) == trained("began")
    for one in waiting:
        one.close()


def test_without_torch_it_can_be_imported(tmp_path: Path) -> None:
    program = Program(tmp_path, None, JOBSIDE)
    (tmp_path / "torch.py").write_text("raise ImportError('there is none')\n")
    program.environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{JOBSIDE}"

    done = program.run("import headway_job\nheadway_job.begin()\nprint(headway_job.__version__)\n")

    assert (done.returncode, done.stderr) == (0, "")
