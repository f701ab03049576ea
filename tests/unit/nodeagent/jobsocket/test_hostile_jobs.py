"""Jobs that mean harm, against a whole agent on its real socket: its memory, its files and the wait of other jobs stay in bounds.

Agent and jobs are processes of their own, and the hostile jobs have users of their own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.nodeagent.jobsocket.hostile import BEHAVIOURS
from tests.unit.nodeagent.wire.packets import packet

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can begin processes of other users")
FIRST_UID = 60_000
MOST_PER_USER = 256
MODULES = "tests.unit.nodeagent.jobsocket"


def python(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", *words], text=True, stderr=subprocess.PIPE, **options)


class Attacked:
    """An agent whose reports are collected."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "run" / "job.sock")
        self.lines: list[dict[str, Any]] = []
        self.process = python(f"{MODULES}.attacked", str(folder), stdout=subprocess.PIPE)
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # others are of the log
                self.lines.append(json.loads(line))

    def wait_for(self, count: int, within_s: float = 60.0) -> None:
        """Wait until there are so many reports."""
        until_s = time.monotonic() + within_s
        while len(self.lines) < count:
            assert self.process.poll() is None, "the agent has ended"
            assert time.monotonic() < until_s, f"{len(self.lines)} reports instead of {count}"
            time.sleep(0.05)


class Neighbour:
    """A well-behaved job of another user, which connects, reports steps, and connects again."""

    def __init__(self, path: str) -> None:
        self.connects_s: list[float] = []
        self.lost = 0
        """Connections that the agent has closed."""
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        steps = 0
        while not self._stop.is_set():
            begun_s = time.monotonic()
            with self._connected() as sock:
                self.connects_s.append(time.monotonic() - begun_s)
                begun_ns = time.monotonic_ns() - 10**9
                sock.send(packet("hello", world_size=1))
                for seq in range(1, 8):
                    steps += 10
                    at = {"first_ns": begun_ns, "last_ns": time.monotonic_ns()}
                    try:
                        sock.send(packet("steps", seq, steps=steps, **at))
                    except OSError:
                        self.lost += 1
                        break
                    self._stop.wait(0.1)

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        """Give a connection that was welcomed; a job tries again while the kernel's queue is full."""
        for _ in range(200):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.settimeout(20.0)
                with suppress(OSError):
                    sock.connect(self._path)
                    if sock.recv(70_000):
                        yield sock
                        return
            time.sleep(0.05)
        raise AssertionError("the agent accepts no connection")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def attack(folder: Path, behaviours: Sequence[str], each: int, reports: int) -> None:
    """Let so many processes behave so until there are so many reports, and check the agent."""
    agent = Attacked(folder)
    hostile: list[subprocess.Popen[str]] = []
    try:
        agent.wait_for(1)
        neighbour = Neighbour(agent.path)
        try:
            agent.wait_for(3)
            quiet = agent.lines[-1]
            for number, behaviour in enumerate(behaviours):
                uid = str(FIRST_UID + number)
                hostile += [python(f"{MODULES}.hostile", behaviour, agent.path, uid) for _ in range(each)]
            before = len(agent.lines)
            agent.wait_for(before + reports, within_s=20.0 + 4 * reports)
            assert [process.poll() for process in hostile] == [None] * len(hostile), "they go on until they are killed"
        finally:
            neighbour.end()
    finally:
        for process in (*hostile, agent.process):
            process.kill()
            process.communicate()
    lines = agent.lines[before:]
    assert max(line["rss_mib"] for line in lines) - quiet["rss_mib"] < 24, "memory"
    assert max(line["files"] for line in lines) - quiet["files"] <= MOST_PER_USER * len(behaviours)
    assert [line["failed"] for line in lines][-1] == 0, lines[-1]["problem"]
    assert neighbour.lost == 0
    assert max(neighbour.connects_s) < 10.0, "the agent is busy for milliseconds; the rest is the machine's"
    steps = [line["steps"] for line in lines if line["steps"] is not None]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0], "the neighbour's steps are reported meanwhile"


def test_all_at_once(folder: Path) -> None:
    attack(folder, list(BEHAVIOURS), each=1, reports=8)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_many_of_a_kind(folder: Path, behaviour: str) -> None:
    attack(folder, [behaviour], each=8, reports=20)
