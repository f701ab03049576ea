"""Profile windows of programs with one process: without output, and without conflicts with the program's profiler or forks."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from headway_job.profiling import window
from headway_job.profiling.kineto import NoProfiler

from nodeagent.wire.frames import Bye, NoProfile, Profile
from tests.unit.headway_job.agent import (
    CONNECTED,
    FAST_POLLS,
    MODEL,
    SENT,
    WHOLE_TORCH,
    Agent,
    Program,
    profiling_agent,
)

_HELPERS = """
import sys, time
def window():
    hook = sys.modules["headway_job.hook.process"]._hook
    return hook.client.window if hook.client else None
def train_until(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        step()
def in_a_window():
    return window() is not None and window().open and len(window()._step_ends) > 2
def train_until_sent(kind):
    train_until(lambda: time.sleep(0.002) or kind in sent)
"""
_AS_IN_A_GROUP = """
from headway_job.profiling import kineto
kineto.recorder = lambda communicates: kineto.Kineto()
"""
"""Lets a window use torch's profiler with one process, too, as if torch.distributed were in use."""
_ALONE = FAST_POLLS.replace("0.002", "0.02") + SENT + MODEL + _HELPERS
_MAX_FACTOR = 8
"""If steps are short, a window has up to so many times the requested steps."""
_PROGRAM = _AS_IN_A_GROUP + _ALONE
_PROGRAM_WITH_PROFILER = _PROGRAM.replace(MODEL, WHOLE_TORCH)


@pytest.fixture
def asking(tmp_path: Path, request: pytest.FixtureRequest) -> Agent:
    return profiling_agent(tmp_path, request, steps=request.param)


@pytest.mark.parametrize("asking", [7], indirect=True)
def test_a_window_prints_nothing(tmp_path: Path, asking: Agent) -> None:
    """Our windows write nothing to stderr, where torch's profiler does; the program's own profiler writes again afterwards."""
    done = Program(tmp_path, asking).run(
        _PROGRAM_WITH_PROFILER
        + """
train_until(in_a_window)
train_until(lambda: window() is None)
train_until_sent("profile")
print("over", file=sys.stderr, flush=True)
with torch.profiler.profile() as mine:
    step()
print(sum(event.key == "aten::addmm" for event in mine.key_averages()))
"""
    )
    asking.close()
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.startswith("over\n")
    profile = asking.connections[0].profile
    assert 7 <= profile.steps <= _MAX_FACTOR * 7
    assert profile.compute_s == profile.step_s > 0
    assert (profile.comm_exposed_s, profile.comm_hidden_s, profile.kinds) == (0, 0, ())
    assert isinstance(asking.connections[0].frames[-1], Bye)


@pytest.mark.parametrize("asking", [7], indirect=True)
def test_without_communication_no_profiler_runs(tmp_path: Path, asking: Agent) -> None:
    done = Program(tmp_path, asking).run(
        _ALONE
        + """
train_until(in_a_window)
print(torch._C._autograd._profiler_enabled())
train_until_sent("profile")
"""
    )
    asking.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    profile = asking.connections[0].profile
    assert 7 <= profile.steps <= _MAX_FACTOR * 7
    assert (profile.kinds, profile.busy_s) == ((), None)
    assert profile.compute_s == profile.step_s > 0


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [(1.0, 20), (0.0126, 20), (0.0049, 51), (0.001, 160), (0.0, 160), (3.5, 17), (100.0, 1)],
)
def test_short_steps_make_a_window_of_more(monkeypatch: pytest.MonkeyPatch, step_s: float, steps: int) -> None:
    """20 steps are requested: a window lasts 0.25 s or more, with at most eight times as many steps, and at most a minute."""
    clock = SimpleNamespace(
        **{name: getattr(time, name) for name in ("time_ns", "thread_time_ns")}, monotonic=lambda: now
    )
    monkeypatch.setattr(window, "time", clock)
    ended: list[window.RecordedWindow | None] = []
    under_way = window.Window(20, ended.append, NoProfiler(), with_queue=False)
    now = 0.0
    while not ended:
        under_way.at_step()
        now += step_s
    assert ended[0] is not None
    assert len(ended[0].step_ends) == steps + 1


@pytest.mark.parametrize("asking", [200], indirect=True)
def test_the_programs_own_profiler_has_precedence(tmp_path: Path, asking: Agent) -> None:
    done = Program(tmp_path, asking).run(
        _PROGRAM_WITH_PROFILER
        + """
train_until(in_a_window)
schedule = torch.profiler.schedule(wait=1, warmup=1, active=3)
with torch.profiler.profile(schedule=schedule) as mine:
    for _ in range(5):
        step()
        mine.step()
assert window() is None
print([event.count for event in mine.key_averages() if event.key == "aten::addmm"])
train_until_sent("no_profile")
for _ in range(100): step(); time.sleep(0.001)
"""
    )
    asking.close()
    assert (done.returncode, done.stdout) == (0, "[3]\n")
    assert "Error" not in done.stderr
    assert asking.connections[0].of(Profile) == []


@pytest.mark.parametrize("asking", [3], indirect=True)
def test_no_window_while_the_program_profiles(tmp_path: Path, asking: Agent) -> None:
    done = Program(tmp_path, asking).run(
        _PROGRAM_WITH_PROFILER
        + """
made = 0
with torch.profiler.profile() as mine:
    while "no_profile" not in sent and made < 6000: step(); made += 1; time.sleep(0.01)
print([event.count == made for event in mine.key_averages() if event.key == "aten::addmm"])
for number in range(60): step(); time.sleep(0.01)
"""
    )
    asking.close()
    assert (done.returncode, done.stdout) == (0, "[True]\n")
    assert asking.connections[0].of(Profile) == []


@pytest.mark.parametrize("asking", [200], indirect=True)
@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit(5)", 5), ("import os; os._exit(6)", 6)])
def test_the_program_ends_during_a_window(tmp_path: Path, asking: Agent, end: str, code: int) -> None:
    done = Program(tmp_path, asking).run(_PROGRAM + f"train_until(in_a_window)\n{end}\n")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize("asking", [30], indirect=True)
def test_forks_cut_windows_short(tmp_path: Path, asking: Agent) -> None:
    """The first forks end the window before it has seen a step, and it is opened again. The last one ends it with what it has."""
    done = Program(tmp_path, asking).run(
        _PROGRAM
        + """
import os
def fork():
    child = os.fork()
    if child == 0:
        torch.zeros(3).add_(1)
        os._exit(torch._C._autograd._profiler_enabled())
    print(os.waitpid(child, 0)[1], end=" ")
for _ in range(3):
    train_until(lambda: window() is not None)
    fork()
train_until(lambda: in_a_window() and len(window()._step_ends) > 10)  # with fewer, one long step makes it worthless
fork()
train_until_sent("profile")
"""
    )
    asking.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0 0 0 ", "")
    assert 9 <= asking.connections[0].profile.steps < 30  # one of the ten may be left out as an interruption


@pytest.mark.slow
@pytest.mark.parametrize("asking", [3], indirect=True)
def test_a_compiled_step(tmp_path: Path, asking: Agent) -> None:
    """dynamo traces an optimizer's step: steps are counted, and it does not warn about our hook."""
    text = (
        _PROGRAM_WITH_PROFILER
        + """
compiled = torch.compile(optimizer.step, backend="eager")
for number in range(40):
    model(torch.ones(4, 8)).sum().backward()
    compiled()
    time.sleep(0.01)
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    )
    program = Program(tmp_path, asking)
    done = program.run(text + CONNECTED)
    asking.close()
    program.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    without = program.run(text)
    assert (done.returncode, done.stdout) == (0, without.stdout)
    assert done.stderr.count("Warning") == without.stderr.count("Warning")
    assert asking.connections[0].steps.steps == 40


_GRAPH = """
from torch.cuda.graphs import CUDAGraph
def captures():
    try:
        CUDAGraph.capture_begin(None)
    except Exception:
        pass  # there is no GPU
"""
_LATER = """
windows = 0
def windows_seen(after_s):
    global windows
    windows += window() is not None
    time.sleep(after_s)
train_until(lambda: windows_seen(0.001) or "no_profile" in sent)
end = time.monotonic() + 0.3
while time.monotonic() < end:
    step()
    windows_seen(0.001)
print(windows)
"""


@pytest.mark.parametrize("asking", [7], indirect=True)
@pytest.mark.parametrize(
    "tool",
    [
        "NSYS_PROFILING_SESSION_ID",
        pytest.param("NSYS_OTHER", marks=pytest.mark.slow),
        pytest.param("CUDA_INJECTION64_PATH", marks=pytest.mark.slow),
        pytest.param("NVTX_INJECTION64_PATH", marks=pytest.mark.slow),
    ],
)
def test_no_window_where_another_tool_traces_the_process(tmp_path: Path, asking: Agent, tool: str) -> None:
    program = Program(tmp_path, asking)
    program.environment[tool] = "1"

    done = program.run(_PROGRAM + _LATER)

    asking.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert asking.connections[0].of(Profile) == []
    assert reasons(asking) == ["tool"]


_ATTACHED = """
import mmap
with open("{library}", "rb") as file:
    loaded = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""


@pytest.mark.parametrize("asking", [7], indirect=True)
@pytest.mark.parametrize(
    "name",
    [
        "libToolsInjection64.so",
        pytest.param("libcuda-injection.so", marks=pytest.mark.slow),
        pytest.param("libInterceptorInjectionTarget.so", marks=pytest.mark.slow),
    ],
)
def test_no_window_where_a_tool_was_attached_to_the_process(tmp_path: Path, asking: Agent, name: str) -> None:
    """The file stands for the tool's library, which the kernel lists among what is mapped into the process."""
    library = tmp_path / name
    library.write_bytes(b"library")

    done = Program(tmp_path, asking).run(_PROGRAM + _ATTACHED.format(library=library) + _LATER)

    asking.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert asking.connections[0].of(Profile) == []
    assert reasons(asking) == ["tool"]


def reasons(agent: Agent) -> list[str]:
    """Return why the program has taken no profile, as it has reported to the agent."""
    return [frame.reason for frame in agent.connections[0].of(NoProfile)]


@pytest.mark.parametrize("asking", [7], indirect=True)
def test_no_window_once_a_cuda_graph_was_captured(tmp_path: Path, asking: Agent) -> None:
    done = Program(tmp_path, asking).run(_PROGRAM + _GRAPH + "captures()\n" + _LATER)

    asking.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert asking.connections[0].of(Profile) == []
    assert reasons(asking) == ["graph"]


@pytest.mark.parametrize("asking", [200], indirect=True)
def test_a_window_ends_where_a_cuda_graph_is_captured(tmp_path: Path, asking: Agent) -> None:
    done = Program(tmp_path, asking).run(
        _PROGRAM
        + _GRAPH
        + """
train_until(in_a_window)
captures()
print(window(), torch._C._autograd._profiler_enabled())
train_until_sent("no_profile")
for _ in range(1000): step()
print(window())
"""
    )

    asking.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "None False\nNone\n", "")
    assert asking.connections[0].of(Profile) == []
    assert reasons(asking) == ["graph"]
