"""A substitute for the agent's end of the job socket, and real training programs that report to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from nodeagent.wire import frames
from nodeagent.wire.frames import Frame, Hello, Model, Profile, Steps
from tests.returning.job import EAGER_TORCH

PROJECT = Path(__file__).resolve().parents[3] / "headway_job"
JOBSIDE = PROJECT / "src"
_PACKET = frames.MAX_FRAME_BYTES + 1

MODEL = """
import eager_torch
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
"""First lines of most programs: 27 parameters in 2 tensors."""
WHOLE_TORCH = MODEL.replace("import eager_torch\n", "")
"""The same for programs that use torch's profiler or compiler, or the worker processes of its data loader."""


FAST_POLLS = """
from headway_job.hook import agent_client
from headway_job.hook import process
agent_client._POLL_S = agent_client._FIRST_RETRY_S = agent_client._MAX_RETRY_S = 0.002
process._START_DELAY_S, process._STOP_AT_EXIT_S = 0.0, 60.0
"""
"""In front of a program: polls every 2 ms instead of every second, so that one second of a test has many polls. At exit, our thread
is waited for, however late it is, as without it the last frames are not sent."""

SOCKETS = """
import os, sys, time, _socket
def sockets(welcomed=False):
    found = 0
    for name in os.listdir("/proc/self/fd"):
        end = None
        try:
            end = _socket.socket(fileno=int(name))
            ours = end.getpeername() == os.environ["HEADWAY_JOB_SOCKET"]
            if ours and welcomed:
                end.setblocking(False)  # as it is; a default timeout of the program would have it wait
                end.recv(1, _socket.MSG_PEEK)
            found += ours
        except OSError:
            pass
        if end is not None:
            end.detach()
    return found
def threads():
    return len(os.listdir("/proc/self/task"))
def wait_until(true):
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end: time.sleep(0.005)
def comes_to(wanted):
    wait_until(lambda: threads() == wanted)
    return threads()
def client():
    return sys.modules["headway_job.hook.process"]._hook.client
def welcomed():
    return client() is not None and client()._hello and (sockets(welcomed=True) or client()._welcomed)
def connected():
    sys.modules["headway_job.hook.process"]._STOP_AT_EXIT_S = 60.0  # so that the last frames are sent
    wait_until(welcomed)
"""
"""In front of a program: functions that count its sockets to the agent and its threads, and wait for them: for the hello and the
welcome, too, which would be an unread packet if the program ended before it."""

CONNECTED = SOCKETS + "connected()\n"
"""At the end of a program that might otherwise end before our thread has connected, on a busy machine."""

SENT = """
from headway_job.hook import agent_socket
sent = []
def recorded(self, kind, fields, send=agent_socket.AgentSocket.send):
    done = send(self, kind, fields)
    sent.extend([kind] * done)
    return done
agent_socket.AgentSocket.send = recorded
"""
"""In front of a program: `sent` has the types of the frames that were sent."""


class Connection:
    """The frames that one process has sent."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.over = False

    def of(self, kind: type) -> list[Frame]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    @property
    def hello(self) -> Hello:
        found = self.of(Hello)[-1]
        assert isinstance(found, Hello)
        return found

    @property
    def model(self) -> Model:
        found = self.of(Model)[-1]
        assert isinstance(found, Model)
        return found

    @property
    def steps(self) -> Steps:
        found = self.of(Steps)[-1]
        assert isinstance(found, Steps)
        return found

    @property
    def profile(self) -> Profile:
        found = self.of(Profile)[-1]
        assert isinstance(found, Profile)
        return found


def polite(connection: Connection, peer: socket.socket, profile_steps: int = 0) -> None:
    """Send a welcome, and read until the job disconnects. The agent's own parser reads the frames, so a wrong one is an error."""
    with suppress(OSError):  # the job has sent everything and is over already
        peer.send(frames.welcome(0, 1.0, profile_steps))
    while packet := _received(peer):
        connection.frames.append(frames.parse(packet))
    connection.over = True


def _received(peer: socket.socket) -> bytes:
    """Return the next packet; empty = there is none.

    A job that ends with an unread welcome causes one error, and what it has sent is still there.
    """
    with suppress(ConnectionResetError):
        return peer.recv(_PACKET)
    return peer.recv(_PACKET)


Manner = Callable[[Connection, socket.socket], None]


class Agent:
    """Listens, and calls `manner` for each connection, in its own thread."""

    def __init__(self, folder: Path, manner: Manner = polite) -> None:
        self.path = folder / "job.sock"
        self.connections: list[Connection] = []
        self.manner = manner
        self.errors: list[BaseException] = []
        self._last: object = None
        """Address of the connection after which no other is accepted."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(self.path))
        self._socket.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                peer, address = self._socket.accept()
            except OSError:
                return
            if address and address == self._last:
                peer.close()
                return
            connection = Connection()
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, peer), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection, peer: socket.socket) -> None:
        with peer:
            try:
                self.manner(connection, peer)
            except (ConnectionError, BrokenPipeError):
                connection.over = True
            except BaseException as error:  # noqa: BLE001 - `close` raises it in the test's own thread
                self.errors.append(error)

    def close(self) -> None:
        """Stop, once everything that was sent has been read, also by jobs that are not accepted yet. A second call does nothing."""
        if self._socket.fileno() < 0:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.bind("")  # the kernel chooses an address
            self._last = last.getsockname()
            last.connect(str(self.path))
            self._threads[0].join(60.0)
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(60.0)
        assert not self.errors, self.errors


def profiling_agent(folder: Path, request: pytest.FixtureRequest, steps: int) -> Agent:
    """Return an agent that requests a profile of so many steps in its welcome; it ends with the test."""

    def manner(connection: Connection, peer: socket.socket) -> None:
        polite(connection, peer, profile_steps=steps)

    agent = Agent(folder, manner)
    request.addfinalizer(agent.close)
    return agent


class Program:
    """A user's program, run as a user would run it, with the folder of headway_job on its PYTHONPATH."""

    def __init__(self, folder: Path, agent: Agent | None, *path: Path) -> None:
        """`path`: folders for PYTHONPATH; by default those of headway_job and of eager_torch, which programs may import."""
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANK", "WORLD_"))},
            "PYTHONPATH": os.pathsep.join(str(part) for part in path or (JOBSIDE, EAGER_TORCH.parent)),
            "HEADWAY_JOB_SOCKET": str(agent.path if agent else folder / "nobody.sock"),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return self.run_ranks(text, 1)[0]

    def write(self, text: str) -> Path:
        """Write the program, and return its file."""
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent(text))
        return script

    def run_ranks(self, text: str, ranks: int) -> list[subprocess.CompletedProcess[str]]:
        """Run so many ranks at once, each with its rank as argument."""
        script = self.write(text)
        running = [
            subprocess.Popen(
                [sys.executable, str(script), *([str(rank)] if ranks > 1 else [])],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self.environment,
                cwd=self.folder,
            )
            for rank in range(ranks)
        ]
        try:
            return [_finish(process) for process in running]
        finally:
            for process in running:
                process.kill()
                process.communicate()


def _finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(
        timeout=240
    )  # of the 300 s of a test: with many others beside, its imports take long
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for a result from another process."""
    give_up_s = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < give_up_s, f"in vain: {what}"
        time.sleep(0.01)
