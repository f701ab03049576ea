"""Agents that are missing, die, do not read or send garbage, and programs that do unusual things: the program must not notice."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import threading
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pytest
from headway_job.hook.agent_socket import AgentGone
from headway_job.hook.skipped_errors import SkippedErrors

from nodeagent.wire import frames
from nodeagent.wire.frames import Bye, Hello, Model, Steps
from tests.unit.headway_job.agent import (
    CONNECTED,
    FAST_POLLS,
    JOBSIDE,
    SOCKETS,
    Agent,
    Connection,
    Program,
    polite,
    until,
)
from tests.unit.headway_job.agent import MODEL as REAL_MODEL
from tests.unit.headway_job.small_torch import MODEL, make

_TRAIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: step(); time.sleep(0.0005)\nprint('trained')\n"
_LOOP = FAST_POLLS + MODEL + _TRAIN.format(1.0)
_LOOP_UNTIL_ENOUGH = (
    "import os\n" + FAST_POLLS + MODEL + _TRAIN.format(55.0).replace("end:", "end and not os.path.exists('enough'):")
)
"""Trains until the test has seen what it waits for, however slow this machine is."""


@pytest.fixture
def path(tmp_path: Path) -> tuple[Path, Path]:
    """Return a PYTHONPATH with a tiny torch that imports fast, as none of these tests depends on torch."""
    return JOBSIDE, make(tmp_path)


@pytest.fixture
def program(tmp_path: Path, agent: Agent, path: tuple[Path, Path]) -> Program:
    return Program(tmp_path, agent, *path)


def test_no_agent(tmp_path: Path, path: tuple[Path, Path]) -> None:
    done = Program(tmp_path, None, *path).run(_LOOP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_an_agent_that_dies_and_comes_back(tmp_path: Path, path: tuple[Path, Path]) -> None:
    program = Program(tmp_path, None, *path)
    program.environment["HEADWAY_JOB_SOCKET"] = str(tmp_path / "job.sock")
    found: list[Agent] = []

    def once_each() -> None:
        first = Agent(tmp_path, lambda connection, peer: connection.frames.append(frames.parse(peer.recv(70000))))
        found.append(first)
        until(lambda: any(one.frames for one in first.connections), "a hello")
        first.close()
        first.path.unlink()
        found.append(Agent(tmp_path))
        until(lambda: any(one.of(Model) for one in found[1].connections), "a model")
        (tmp_path / "enough").touch()

    keeper = threading.Thread(target=once_each)
    keeper.start()
    until(lambda: bool(found), "an agent")
    done = program.run(_LOOP_UNTIL_ENOUGH)
    keeper.join()
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    second = found[1]
    second.close()
    last = second.connections[-1]
    assert [frame.seq for frame in last.frames] == list(range(len(last.frames)))
    assert last.hello.script == "train.py"
    assert last.model.num_params == 24
    assert isinstance(last.frames[-1], Bye)


def test_an_agent_that_never_reads(tmp_path: Path, path: tuple[Path, Path]) -> None:
    over = threading.Event()

    def deaf(_connection: Connection, _peer: socket.socket) -> None:
        over.wait(60.0)

    agent = Agent(tmp_path, deaf)
    always = _LOOP.replace("import torch\n", "import torch\nfrom headway_job.hook import process_facts\n", 1)
    always = always.replace(
        "while ", "numbers = iter(range(10**9))\nprocess_facts.ranks = lambda: (next(numbers), -1)\nwhile "
    )
    done = Program(tmp_path, agent, *path).run(always)  # another hello at each poll, so that the socket is full at once
    over.set()
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


_GARBAGE = [
    b"\x00",
    b"\xc1" * 1000,
    b"\x81\xa1x" + b"\x91" * 60000,
    os.urandom(65536),
    b"\xdf\xff\xff\xff\xff",
    msgpack.packb([1, 2, 3]),
    msgpack.packb({1: 2}),
    msgpack.packb({"v": 1, "type": "welcome", "seq": 0, "interval_s": float("nan"), "profile_steps": -5}),
    msgpack.packb({"v": 1, "type": "welcome", "seq": 0, "interval_s": "soon", "profile_steps": {"a": 1}}),
    msgpack.packb({"v": 1, "type": "welcome", "interval_s": -1e308, "profile_steps": True}),
    msgpack.packb({"v": 1, "type": "profile", "steps": None}),
    msgpack.packb({"v": 1, "type": "profile", "steps": 1e300}),
    msgpack.packb({"v": 1, "type": "profile", "steps": 2**63}),
    msgpack.packb({"v": 9, "type": ["profile"], "seq": -1}),
    msgpack.packb({"type": None}),
    msgpack.packb({}),
]


def test_an_evil_agent(tmp_path: Path, path: tuple[Path, Path]) -> None:
    sent: list[bytes] = []

    def evil(_connection: Connection, peer: socket.socket) -> None:
        packet = _GARBAGE[len(sent) % len(_GARBAGE)]
        sent.append(packet)
        if len(sent) > len(_GARBAGE):
            (tmp_path / "enough").touch()
        peer.settimeout(0.03)
        peer.send(packet)
        try:
            for _ in range(5):
                peer.recv(70000)
        except TimeoutError:
            return  # it was ignored

    agent = Agent(tmp_path, evil)
    done = Program(tmp_path, agent, *path).run(_LOOP_UNTIL_ENOUGH)
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    assert len(sent) > len(_GARBAGE)


def test_an_agent_that_floods(tmp_path: Path, path: tuple[Path, Path]) -> None:
    def flood(_connection: Connection, peer: socket.socket) -> None:
        while True:
            peer.send(msgpack.packb({"v": 1, "type": "news", "seq": 0, "text": "x" * 1000}))

    agent = Agent(tmp_path, flood)
    done = Program(tmp_path, agent, *path).run(_LOOP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


@pytest.mark.parametrize("value", ["", "relative", "/" + "x" * 4000, "/dev/null", "/proc/self/mem", "\udcff"])
def test_an_impossible_socket(tmp_path: Path, path: tuple[Path, Path], value: str) -> None:
    program = Program(tmp_path, None, *path)
    program.environment["HEADWAY_JOB_SOCKET"] = value
    program.environment.update(RANK="banana", WORLD_SIZE="-4", LOCAL_RANK="9" * 400, SLURM_RESTART_COUNT="½")
    done = program.run("import sys\nsys.argv = None\n" + _LOOP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_odd_variables_are_not_known(agent: Agent, program: Program) -> None:
    program.environment.update(RANK="banana", WORLD_SIZE="-4", LOCAL_RANK="9" * 400, SLURM_RESTART_COUNT="²")
    program.run("import sys\ndel sys.argv\n" + _LOOP + CONNECTED)
    agent.close()
    hello = agent.connections[0].hello
    assert (hello.rank, hello.world_size, hello.local_rank, hello.restart) == (-1, -1, -1, 0)
    assert hello.script == ""


@pytest.mark.parametrize(
    "module",
    [
        "hook/process",
        "hook/agent_client",
        "hook/step_counter",
        "hook/profiler_guard",
        "hook/profile_windows",
        "hook/agent_socket",
        "hook/skipped_errors",
        "profiling/kineto",
    ],
)
def test_a_broken_installation(tmp_path: Path, agent: Agent, module: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(JOBSIDE, broken)
    (broken / "headway_job" / f"{module}.py").write_text("this is no Python\n")
    done = Program(tmp_path, agent, broken, make(tmp_path)).run(MODEL + _TRAIN.format(0.5))
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


_BROKEN = """
from headway_job.hook import process_facts, skipped_errors
skipped_errors._FIRST_PAUSE_S = skipped_errors._LONGEST_PAUSE_S = 0.002
process._FIRST_RETRY_S = process._MAX_RETRY_S = 0.002
def fail_first(holder, name):
    fails, works = iter(range(5)), getattr(holder, name)
    def work(*arguments, **options):
        if next(fails, None) is not None:
            raise LookupError("a mistake in the hook")
        return works(*arguments, **options)
    setattr(holder, name, work)
"""


@pytest.mark.parametrize(
    "part",
    [
        ("process_facts", "hello"),
        ("process_facts", "model"),
        ("agent_client.AgentClient", "_connect"),
        ("agent_client.AgentClient", "_rest_s"),
        ("agent_client.AgentClient", "_handle"),
        ("agent_client.AgentClient", "_send_saves"),
        ("agent_client.AgentClient", "_send_steps"),
        ("agent_client.AgentSocket", "receive"),
        ("agent_client.ProfileWindows", "open"),
        ("agent_client.AgentClient", "__init__"),
    ],
)
def test_a_mistake_in_the_hook_costs_what_it_concerns_and_never_the_thread(
    tmp_path: Path, path: tuple[Path, Path], part: tuple[str, str]
) -> None:
    """Five unexpected errors later everything is reported; the program does not notice."""

    def served(connection: Connection, peer: socket.socket) -> None:
        connection.frames = Enough(tmp_path)
        polite(connection, peer)

    agent = Agent(tmp_path, served)
    broken = _LOOP_UNTIL_ENOUGH.replace(FAST_POLLS, FAST_POLLS + _BROKEN + f"fail_first({part[0]}, {part[1]!r})\n")
    done = Program(tmp_path, agent, *path).run(broken)
    agent.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")
    assert (tmp_path / "enough").exists()


class Enough(list[frames.Frame]):
    """Frames of a connection. Creates the file that ends the program once there are a hello, a model and steps."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def append(self, frame: frames.Frame) -> None:
        super().append(frame)
        if {Hello, Model, Steps} <= {type(each) for each in self}:
            (self._folder / "enough").touch()


def test_parts_that_fail_are_tried_again_after_growing_pauses() -> None:
    now_s, calls = [0.0], []
    parts = SkippedErrors(AgentGone, lambda: now_s[0])

    def work(error: Exception | None) -> None:
        calls.append(now_s[0])
        if error is not None:
            raise error

    for second in range(1, 400):
        now_s[0] = float(second)
        parts.run("part", work, ValueError())
    assert calls == [1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364]
    parts.run("other", work, None)  # another part has no pause
    now_s[0] = 1000.0
    for _ in range(2):
        parts.run("part", work, None)
    with pytest.raises(AgentGone):
        parts.run("part", work, AgentGone())
    parts.run_now(work, ValueError())
    assert calls[12:] == [399, 1000, 1000, 1000, 1000]


def test_a_traceback_stays_the_program_s_own(tmp_path: Path, agent: Agent) -> None:
    text = REAL_MODEL + "step()\nraise LookupError('of the user')\n"
    done = Program(tmp_path, agent).run(text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Traceback (most recent call last):\n"
        f'  File "{tmp_path / "train.py"}", line {text.count(chr(10))}, in <module>\n'
        "    raise LookupError('of the user')\n"
        "LookupError: of the user\n"
    )


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os._exit(4)", 4), ("os.kill(os.getpid(), 9)", -9)])
def test_the_exit_code_stays(agent: Agent, program: Program, end: str, code: int) -> None:
    done = program.run(MODEL + f"import os, sys\nfor _ in range(5): step()\n{end}\n")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_descriptors_closed_and_taken(agent: Agent, program: Program) -> None:
    """The program closes all descriptors, and its own files and sockets get their numbers: we write nothing into them."""
    done = program.run(
        FAST_POLLS
        + SOCKETS
        + MODEL
        + """
import os, socket, time
step()
connected()
for _ in range(20): step()
os.closerange(3, 2000)
files, pairs = [], []
for number in range(3, 900):
    if number % 2:
        files.append(os.open("mine.%d" % (number % 7), os.O_RDWR | os.O_CREAT))
    else:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
end = time.monotonic() + 1.5
while time.monotonic() < end: step()
sizes = {os.fstat(fd).st_size for fd in files}
got = 0
for pair in pairs:
    for end in pair:
        try:
            got += len(end.recv(70000, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
print(sizes, got, len(pairs))
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{0} 0 448\n", "")


def test_limits_of_the_process(agent: Agent, program: Program) -> None:
    """Threads that still run when Python ends, as ours may, do not end it by SIGABRT."""
    done = program.run(
        MODEL
        + """
import _thread, resource, time
def late():
    while True: time.sleep(0.001)
for _ in range(20): _thread.start_new_thread(late, ())
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""
        + _TRAIN.format(1.0)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_a_default_timeout_of_sockets(agent: Agent, program: Program) -> None:
    done = program.run("import socket\nsocket.setdefaulttimeout(30)\n" + _LOOP + CONNECTED)
    agent.close()
    assert done.stdout == "trained\n"
    assert isinstance(agent.connections[0].frames[-1], Bye)


def test_peer_credentials_are_of_the_process(tmp_path: Path, path: tuple[Path, Path]) -> None:
    pids: list[int] = []

    def look(connection: Connection, peer: socket.socket) -> None:
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pids.append(struct.unpack("3i", raw)[0])
        polite(connection, peer)

    agent = Agent(tmp_path, look)
    done = Program(tmp_path, agent, *path).run(
        MODEL + "import os, time\nfor _ in range(20): step(); time.sleep(0.02)\nprint(os.getpid())\n" + CONNECTED
    )
    agent.close()
    assert pids == [int(done.stdout)] == [agent.connections[0].hello.pid]
    assert pids[0] != os.getpid()
