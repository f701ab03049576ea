"""Profile windows of programs with several threads: only the thread that trains stops its profiler, and only where that is safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.wire.frames import NoProfile, Profile
from tests.unit.headway_job.agent import (
    FAST_POLLS,
    SENT,
    SOCKETS,
    WHOLE_TORCH,
    Agent,
    Program,
    profiling_agent,
)

_PROGRAM = (
    FAST_POLLS.replace("0.002", "0.02")
    + SENT
    + SOCKETS
    + WHOLE_TORCH
    + """
import threading
from headway_job.profiling import kineto, window as windows
kineto.recorder = lambda communicates: kineto.Kineto()
ended = threading.Event()
def say(*words):
    print(" ".join(map(str, words)) + "\\n", end="", flush=True)  # one write: another thread may print, too
def window():
    return client().window if client() else None
def in_a_window():
    return window() is not None and window().open and len(window()._step_ends) > 2
def in_a_window_with_enough_steps():  # with fewer, one long step makes the window worthless
    return in_a_window() and len(window()._step_ends) > 10
def recording():
    return torch._C._autograd._profiler_enabled()
def train_until(true):
    while not ended.is_set() and not true():
        step()
        time.sleep(0.002)
opened = threading.Event()
def trains_beside(then):
    def train():
        train_until(in_a_window)
        opened.set()
        then()
    thread = threading.Thread(target=train)
    thread.start()
    opened.wait(60)
    return thread
def profile():
    with torch.profiler.profile() as mine:
        step()
    say([event.count for event in mine.key_averages() if event.key == "aten::addmm"])
"""
)


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Agent:
    return profiling_agent(tmp_path, request, steps=200)


def reasons(agent: Agent) -> list[str]:
    """Return why the program has taken no profile, as it has reported to the agent."""
    return [frame.reason for frame in agent.connections[0].of(NoProfile) if isinstance(frame, NoProfile)]


def test_the_programs_profiler_starts_in_another_thread(agent: Agent, program: Program) -> None:
    """The training thread ends the window at its next step, before the program's profiler starts."""
    done = program.run(
        _PROGRAM
        + """
windows._HAND_OVER_S = 60.0
def then():
    train_until(lambda: "no_profile" in sent and window() is None)  # our thread may send it before the window has ended
    say(recording(), window())
    ended.wait(60)
trains = trains_beside(then)
profile()
wait_until(lambda: "no_profile" in sent)
profile()
ended.set()
trains.join()
"""
    )
    agent.close()
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["False None", "[1]", "[1]"]
    assert agent.connections[0].of(Profile) == []
    assert reasons(agent) == ["program"]


def test_the_training_thread_makes_no_step_meanwhile(agent: Agent, program: Program) -> None:
    """It waits for the thread that profiles. Its window is lost, and it trains on without recording anything."""
    done = program.run(
        _PROGRAM
        + """
windows._HAND_OVER_S = 0.1
profiled = threading.Event()
def then():
    profiled.wait(60)
    train_until(lambda: window() is None)
    for _ in range(20): step()
    say("trained on", client()._windows.current)
trains = trains_beside(then)
before = window()
profile()
profiled.set()
trains.join()
print(before._lost, before._over, before._step_ends)
profile()
"""
    )
    agent.close()
    assert (done.returncode, done.stdout) == (0, "[1]\ntrained on None\nTrue True []\n[1]\n"), done.stderr
    assert agent.connections[0].of(Profile) == []


def test_the_training_thread_ends_during_a_window(agent: Agent, program: Program) -> None:
    """The window ends with it, in it, with what it has; the next thread trains and profiles as usual."""
    done = program.run(
        _PROGRAM
        + """
trains = threading.Thread(target=train_until, args=(in_a_window_with_enough_steps,))
trains.start()
trains.join()
print(window())
wait_until(lambda: "profile" in sent)
later = threading.Thread(target=profile)
later.start()
later.join()
profile()
"""
    )
    agent.close()
    assert (done.returncode, done.stdout) == (0, "None\n[1]\n[1]\n"), done.stderr
    assert 9 <= agent.connections[0].profile.steps < 200  # one of the ten may be left out as an interruption


def test_no_window_after_the_programs_own_profiler(agent: Agent, program: Program) -> None:
    """An annotation that was begun under it may end at any time, in a window into memory that was freed."""
    done = program.run(_PROGRAM + "profile()\ntrain_until(lambda: 'no_profile' in sent)\nprint(window())\n")
    agent.close()
    assert (done.returncode, done.stdout) == (0, "[1]\nNone\n")
    assert reasons(agent) == ["program"]


def test_the_older_profiler_of_torch(agent: Agent, program: Program) -> None:
    done = program.run(
        _PROGRAM
        + """
from torch.autograd import profiler_legacy
train_until(in_a_window)
with profiler_legacy.profile():
    say(window())
"""
    )
    agent.close()
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
    assert reasons(agent) == ["program"]


def test_an_optimizer_that_steps_within_backward(agent: Agent, program: Program) -> None:
    """torch takes a profiler back that was started there: no window is opened, and nothing is written to stderr."""
    done = program.run(
        _PROGRAM
        + """
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda parameter: optimizer.step())
def step():
    model(torch.ones(4, 8)).sum().backward()
train_until(lambda: recording() or "no_profile" in sent)
print(recording())
"""
    )
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    assert reasons(agent) == ["busy"]
