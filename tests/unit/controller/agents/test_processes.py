"""Agent and controller as processes, with a real munged between them: killed, stopped, cut off, and on a bad line.

In every case each report that the agent's outbox did not give up is in the store, once.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.unit.controller.agents.test_server import let_in
from tests.unit.nodeagent.uplink.munged import running_munged
from tests.unit.policies.processes import ROOT, eventually


@pytest.fixture(scope="module")
def munge() -> Iterator[Path]:
    with running_munged() as (socket, _):
        yield socket


class Process:
    """One of the two programs of agent_process.py, and what it says of itself."""

    def __init__(self, role: str, state_file: Path, *argv: object) -> None:
        self.state_file = state_file
        state_file.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "tests.unit.controller.worlds.agent_process",
            role,
            str(state_file),
            *map(str, argv),
        ]
        self._log = state_file.with_suffix(".log").open("ab")
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log)

    def state(self) -> dict[str, Any]:
        if self._process.poll() is not None and self._process.returncode != -signal.SIGKILL:
            raise AssertionError(self.state_file.with_suffix(".log").read_text()[-3000:])
        try:
            return dict(json.loads(self.state_file.read_text()))
        except FileNotFoundError:
            return {}

    async def until(self, key: str, least: float) -> dict[str, Any]:
        """Its state, when that number has come so far."""

        async def far_enough() -> dict[str, Any] | None:
            state = self.state()
            return state if state.get(key, -1) >= least else None

        try:
            found = await eventually(far_enough)
        except AssertionError as error:
            raise AssertionError(f"{key} did not reach {least}: {self.state()}") from error
        assert found is not None
        return found

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(timeout=60)
        self._log.close()


class Line:
    """A TCP proxy that can be cut, and that can lose or repeat pieces of what it carries."""

    def __init__(self, seed: int = 0) -> None:
        self.port = 0
        """Of the far end."""
        self.lose = self.repeat = 0.0
        """Shares of pieces."""
        self._rng = random.Random(seed)
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying = 0
        self.address = ""

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Line]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await let_in()
            while self._carrying:
                self.cut()
                await asyncio.sleep(0.01)

    def cut(self) -> None:
        for end in list(self._ends):
            end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._carrying += 1
        try:
            await self._join(reader, writer)
        finally:
            self._carrying -= 1

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        await asyncio.gather(self._pipe(reader, far_writer), self._pipe(far_reader, writer))
        self._ends -= {writer, far_writer}

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                if self._rng.random() < self.lose:
                    continue
                writer.write(piece)
                if self._rng.random() < self.repeat:
                    writer.write(piece)
                await writer.drain()
        writer.transport.abort()


class World:
    """A connection, and the two processes at its ends."""

    def __init__(self, folder: Path, munge: Path, line: Line) -> None:
        self.folder, self.munge, self.line = folder, munge, line
        self.silence_s = 1.5
        """Time without a message after which either process treats the other as lost, in seconds."""
        self._processes: list[Process] = []

    async def serve(self) -> Process:
        state_file = self.folder / f"server{len(self._processes)}"
        server = Process("server", state_file, self.folder / "state", self.munge, self.silence_s)
        self._processes.append(server)

        async def listening() -> str:
            return str(server.state().get("address", ""))

        self.line.port = int((await eventually(listening)).rpartition(":")[2])
        return server

    def agent(self, uid: int, reports: int, *more: object) -> Process:
        state_file = self.folder / f"agent{len(self._processes)}"
        process = Process("agent", state_file, self.line.address, self.munge, self.silence_s, uid, reports, *more)
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            process.kill()

    def stored(self, uid: int) -> Counter[int]:
        """How often each profile of that agent is in the store."""
        with closing(sqlite3.connect(self.folder / "state" / "profiles.sqlite")) as db:
            return Counter(row[0] for row in db.execute("SELECT job_id FROM profile WHERE uid = ?", (uid,)))

    def receipt(self, run_id: str) -> tuple[int, int]:
        """Highest number and reports lost of a run."""
        with closing(sqlite3.connect(self.folder / "state" / "profiles.sqlite")) as db:
            row = db.execute("SELECT number, lost FROM receipt WHERE run_id = ?", (run_id,)).fetchone()
            return (0, 0) if row is None else row


@pytest.fixture
async def world(tmp_path: Path, munge: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(Line(seed=11).up())
        world = World(tmp_path, munge, line)
        stack.callback(world.end)
        yield world


def once(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


async def test_the_controller_is_killed(world: World) -> None:
    world.silence_s = 60.0  # no stream ends but by a kill
    server = await world.serve()
    agent = world.agent(1, 600)
    for streams, least in enumerate((150, 350), start=2):
        await agent.until("acknowledged", least)
        server.kill()
        server = await world.serve()
        await agent.until("streams", streams)
    state = await agent.until("acknowledged", 600)
    assert world.stored(1) == once(600)
    assert (state["dropped"], world.receipt(state["run_id"])) == (0, (600, 0))
    assert state["streams"] == 3


async def test_the_agent_is_killed(world: World) -> None:
    # given an agent that dies with reports in its memory
    await world.serve()
    first = world.agent(1, 10**6)
    state = await first.until("acknowledged", 200)
    first.kill()
    # when the next one has said all
    second = world.agent(2, 200)
    await second.until("acknowledged", 200)
    # then of the first there is a beginning without gaps, with all that was acknowledged, and of the second all
    stored = world.stored(1)
    assert stored == once(len(stored))
    assert len(stored) >= state["acknowledged"]
    assert world.stored(2) == once(200)


async def test_the_controller_stands_still(world: World) -> None:
    server = await world.serve()
    agent = world.agent(1, 500)
    await agent.until("acknowledged", 100)
    server.send(signal.SIGSTOP)

    async def given_up() -> bool:
        return agent.state()["error"] != ""

    await eventually(given_up)
    server.send(signal.SIGCONT)
    await agent.until("acknowledged", 500)
    assert world.stored(1) == once(500)


async def test_the_agent_stands_still(world: World) -> None:
    server = await world.serve()
    agent = world.agent(1, 500)
    await agent.until("acknowledged", 100)
    agent.send(signal.SIGSTOP)

    async def given_up() -> bool:
        return server.state()["nodes"]["n1"][0] is False

    await eventually(given_up)
    agent.send(signal.SIGCONT)
    await agent.until("acknowledged", 500)
    assert world.stored(1) == once(500)

    async def dialled_anew() -> bool:
        return bool(server.state()["nodes"]["n1"][1] >= 2)

    await eventually(dialled_anew)


async def test_the_line_is_cut_again_and_again(world: World) -> None:
    await world.serve()
    agent = world.agent(1, 600)
    for streams, least in enumerate(range(50, 600, 110), start=2):
        await agent.until("acknowledged", least)
        world.line.cut()
        await agent.until("streams", streams)
    state = await agent.until("acknowledged", 600)
    assert world.stored(1) == once(600)
    assert state["streams"] > 2


@pytest.mark.parametrize("harm", ["lose", "repeat"])
async def test_pieces_on_the_line_are_lost_or_repeated(world: World, harm: str) -> None:
    # given a line on which a twentieth of all pieces goes wrong, so that streams break in their middle
    await world.serve()
    agent = world.agent(1, 400)
    await agent.until("acknowledged", 20)
    setattr(world.line, harm, 0.05)
    await agent.until("streams", 3)
    # when it is good again
    setattr(world.line, harm, 0.0)
    world.line.cut()
    await agent.until("acknowledged", 400)
    # then all came, once
    assert world.stored(1) == once(400)


async def test_what_the_outbox_gives_up_is_all_that_is_lost(world: World) -> None:
    # given an agent with room for about a hundred reports, every tenth to be kept, and no controller for a while
    server = await world.serve()
    agent = world.agent(1, 1500, 10, 24_000 + 150 * 250, 100)
    await agent.until("acknowledged", 100)
    server.kill()
    agent.send(signal.SIGUSR1)  # only now it makes the others
    await agent.until("made", 1500)
    await world.serve()
    state = await agent.until("acknowledged", 1500)
    # then what is to be kept is there, and what is missing was counted by both
    highest, lost = world.receipt(state["run_id"])
    assert world.stored(1) == Counter(range(10, 1501, 10))
    assert highest == 1500
    assert 0 < lost <= state["dropped"] < 1400


async def test_a_caller_that_is_not_root_is_no_agent(world: World) -> None:
    """A good credential, of a user who may not be one."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    await world.serve()
    code = (
        "import asyncio, os, sys; from tests.unit.controller.worlds import agent_process\n"
        "os.setgid(65534); os.setuid(65534); asyncio.run(agent_process.agent(*sys.argv[1:]))"
    )
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        state_file = Path(folder) / "reported"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(state_file), world.line.address, str(world.munge), "30", "1", "5"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:

            async def refused() -> bool:
                assert process.poll() is None, process.communicate()[0].decode()
                return (
                    state_file.exists()
                    and "PERMISSION_DENIED: uid 65534" in json.loads(state_file.read_text())["error"]
                )

            await eventually(refused)
        finally:
            process.kill()
            process.communicate(timeout=60)
    assert world.stored(1) == Counter()
