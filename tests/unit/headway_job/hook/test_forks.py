"""Programs that fork: their children send nothing, and keep nothing of ours open."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.wire.frames import Bye, Hello, Steps
from tests.unit.headway_job.agent import (
    FAST_POLLS,
    JOBSIDE,
    SENT,
    SOCKETS,
    WHOLE_TORCH,
    Agent,
    Program,
    profiling_agent,
)
from tests.unit.headway_job.small_torch import MODEL, make


@pytest.fixture
def program(tmp_path: Path, agent: Agent) -> Program:
    return Program(tmp_path, agent, JOBSIDE, make(tmp_path))


def test_forks_while_frames_are_sent(agent: Agent, program: Program) -> None:
    """A hello at every turn, a turn every 2 ms, 200 forks: each child trains, sees no socket, and exits in every way."""
    done = program.run(
        FAST_POLLS
        + SOCKETS
        + MODEL
        + """
import sys, time
from headway_job.hook import process_facts
numbers = iter(range(10**9))
process_facts.ranks = lambda: (next(numbers), -1)
for _ in range(10): step()
connected()
assert sockets() == 1, sockets()
wrong = 0
for number in range(200):
    step()
    child = os.fork()
    if child == 0:
        for _ in range(300): step()
        code = 0 if sockets() == 0 and threads() == 1 else 1
        os._exit(code) if number % 2 else sys.exit(code)
    wrong += os.waitpid(child, 0)[1] != 0
print(wrong)
for _ in range(20): step(); time.sleep(0.01)
"""
    )
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    (connection,) = agent.connections
    assert connection.steps.steps == 10 + 200 + 20
    assert [frame.seq for frame in connection.frames] == list(range(len(connection.frames)))
    assert sum(isinstance(frame, Hello) for frame in connection.frames) > 10
    assert isinstance(connection.frames[-1], Bye)
    assert len({frame.pid for frame in connection.frames if isinstance(frame, Hello)}) == 1


def test_no_thread_of_ours_runs_at_a_fork(agent: Agent, program: Program) -> None:
    """Python 3.12 warns of forks beside other threads: what is an error for the program must not come from here."""
    done = program.run(
        SOCKETS
        + MODEL
        + """
import time
step()
connected()
assert comes_to(2) == 2
seen = []
os.register_at_fork(before=lambda: seen.append(threads()))
# registered first, so called last before a fork: our handler has run by then; the child checks, too
child = os.fork()
if child == 0:
    os._exit(threads())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
print(comes_to(1))
step()
step()
print(comes_to(2))
"""
    )
    assert (done.stdout, done.stderr) == ("1\n2\n", "")


def test_a_daemon_that_forks_twice(agent: Agent, program: Program) -> None:
    done = program.run(
        SOCKETS
        + MODEL
        + """
step()
connected()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for _ in range(100): step()
        os._exit(0)
    os._exit(0)
os.wait()
print("away")
"""
    )
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "away\n", "")
    assert [type(frame) for frame in agent.connections[0].frames] == [Hello, Steps, Bye]
    assert agent.connections[0].steps.steps == 1


def test_workers_of_a_data_loader(tmp_path: Path, agent: Agent) -> None:
    """Two workers an epoch, forked; a window is asked for all the same, and comes of an epoch that is long enough."""
    real = Program(tmp_path, agent)
    done = real.run(
        SOCKETS
        + WHOLE_TORCH
        + """
import time
import torch.utils.data
class Items(torch.utils.data.Dataset):
    def __len__(self): return 60
    def __getitem__(self, index):
        assert sockets() == 0
        return torch.ones(8)
items = Items()
step()
connected()
for epoch in range(3):
    for batch in torch.utils.data.DataLoader(items, batch_size=2, num_workers=2):
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
        time.sleep(0.01)
print("trained")
"""
    )
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    (connection,) = agent.connections
    assert connection.steps.steps == 1 + 90
    assert isinstance(connection.frames[-1], Bye)


_PROFILED = (
    FAST_POLLS
    + SENT
    + SOCKETS
    + WHOLE_TORCH
    + """
import atexit, ctypes, signal, sys, time
from headway_job.profiling import kineto
kineto.recorder = lambda communicates: kineto.Kineto()
def profiled():
    step()
    time.sleep(0.002)
    return "profile" in sent
def ended(child):
    def over():
        nonlocal code
        done, status = os.waitpid(child, os.WNOHANG)
        if done: code = os.waitstatus_to_exitcode(status)
        return done
    code = None
    wait_until(over)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return code
wait_until(profiled)
"""
)


def test_children_exit_after_a_profile(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A child and its own child exit with their codes, their atexit functions run, and the output of C and Python is written."""
    agent = profiling_agent(tmp_path, request, steps=3)
    done = Program(tmp_path, agent).run(
        _PROFILED
        + """
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild == 0:
        sys.exit(5)
    atexit.register(print, "atexit ran")
    ctypes.CDLL(None).printf(b"C wrote\\n")
    print("grandchild", ended(grandchild))
    sys.exit(7)
print("child", ended(child))
"""
    )
    agent.close()
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["C wrote", "atexit ran", "child 7", "grandchild 5"]


_LAUNCHER = (
    SOCKETS
    + MODEL
    + """
import multiprocessing
def train(steps):
    for _ in range(steps): step()
    connected()
    assert sockets() == 1, sockets()
"""
)


def test_ranks_that_a_launcher_forks_are_measured(agent: Agent, program: Program) -> None:
    """The launcher itself is not, nor is its helper that makes no step."""
    done = program.run(
        _LAUNCHER
        + """
fork = multiprocessing.get_context("fork")
def idle():
    assert (threads(), sockets()) == (1, 0)
started = [fork.Process(target=train, args=(steps,)) for steps in (20, 30)] + [fork.Process(target=idle)]
for process in started: process.start()
for process in started: process.join()
print([process.exitcode for process in started], sockets())
"""
    )
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 0, 0] 0\n", "")
    assert sorted(connection.steps.steps for connection in agent.connections) == [20, 30]
    assert len({connection.hello.pid for connection in agent.connections}) == 2
    for connection in agent.connections:
        assert connection.hello.loaded_ns <= connection.steps.first_ns
        assert isinstance(connection.frames[-1], Bye)


def test_a_rank_that_is_forked_twice_and_forks_itself(agent: Agent, program: Program) -> None:
    """A daemon's child trains, forks workers of its own, which are not measured, and trains on."""
    done = program.run(
        _LAUNCHER
        + """
import sys
if os.fork() == 0:
    if os.fork() == 0:
        train(20)
        child = os.fork()
        if child == 0:
            for _ in range(300): step()
            os._exit(sockets())
        assert os.waitpid(child, 0)[1] == 0
        train(10)
        sys.exit(3)
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    )
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    (connection,) = agent.connections
    assert connection.steps.steps == 30
    assert isinstance(connection.frames[-1], Bye)
