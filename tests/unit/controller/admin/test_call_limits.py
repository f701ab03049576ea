"""Callers that do not take their answers: how much of the controller's memory one user may occupy."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from controller.admin import call_limits
from controller.admin.call_limits import CallLimits
from controller.admin.front import Front
from controller.admin.protocol import REASON, Reason
from controller.admin.serve import serve_admin
from controller.admin.viewer import Viewer
from policies.serving.runtime.strict_requests import StrictRequests
from protos.headway.v1 import admin_pb2, admin_pb2_grpc
from tests.unit.controller.worlds.controller_world import world_in

DEADLINE_S = 60.0
MIB = 1 << 20
ENTRY = admin_pb2.QueueEntry(job_id="1", why="x" * 1000)
QUEUE = admin_pb2.Queue(entries=[ENTRY] * 2000)
"""An answer of two MiB."""


class Queues(admin_pb2_grpc.AdminServicer):
    """Answers at once."""

    async def GetQueue(self, request: Any, context: Any) -> admin_pb2.Queue:  # noqa: N802 - as gRPC calls it
        return QUEUE


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def patient_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the limits of calls alone end connections; test_front.py has the Front's."""
    monkeypatch.setattr("controller.admin.front.STALL_S", 3600.0)


@asynccontextmanager
async def serving(folder: Path, cut: Callable[[Front, str], None] | None = None) -> AsyncIterator[CallLimits]:
    """A server of queues behind a Front, on `s`."""
    front = Front(folder / "inner")
    front.listen(f"unix:{folder / 's'}")
    limits = CallLimits(16, front.cut if cut is None else lambda peer: cut(front, peer))
    server = grpc.aio.server(interceptors=(limits, StrictRequests()))
    admin_pb2_grpc.add_AdminServicer_to_server(Queues(), server)  # type: ignore[abstract] # no other call is made
    server.add_insecure_port(f"unix:{folder / 'inner'}")
    await server.start()
    await front.start()
    try:
        yield limits
    finally:
        await front.close()
        await server.stop(None)


class SlowReader:
    """A caller with calls over one connection, of which it reads some hundred bytes until it is told to read on."""

    def __init__(self, path: Path, server: Path, calls: int) -> None:
        self._path, self._server, self._num_calls = path, server, calls
        self.reads_on = asyncio.Event()
        self.lost = asyncio.Event()
        """Set when the server has ended the connection."""
        self.calls: list[Any] = []
        self._connections: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[SlowReader]:
        relay = await asyncio.start_unix_server(self._relay, self._path)
        options = (
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        )
        async with relay, grpc.aio.insecure_channel(f"unix:{self._path}", options) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            self.calls = [stub.GetQueue(admin_pb2.GetQueueRequest()) for _ in range(self._num_calls)]
            try:
                yield self
            finally:
                self.reads_on.set()
                for connection in self._connections:
                    connection.transport.abort()  # as when a process ends

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._server, limit=1024)
        self._connections.append(to_server)
        sending = asyncio.create_task(self._send(reader, to_server))
        try:
            with suppress(ConnectionError):
                received = 0
                while data := await from_server.read(200):
                    writer.write(data)
                    await writer.drain()
                    received += len(data)
                    if received > 400:
                        await self.reads_on.wait()
            self.lost.set()
        finally:
            sending.cancel()
            writer.close()
            to_server.close()

    @staticmethod
    async def _send(reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                to_server.write(data)
                await to_server.drain()


@asynccontextmanager
async def slow_readers(
    folder: Path, connections: int, calls: int, socket: str = "s"
) -> AsyncIterator[list[SlowReader]]:
    async with AsyncExitStack() as stack:
        readers = [SlowReader(folder / f"r{number}", folder / socket, calls) for number in range(connections)]
        yield [await stack.enter_async_context(reader.calling()) for reader in readers]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def queue_of(path: Path) -> admin_pb2.Queue:
    options = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"unix:{path}", options) as channel:
        return await admin_pb2_grpc.AdminStub(channel).GetQueue(admin_pb2.GetQueueRequest(), timeout=DEADLINE_S)


async def ended(readers: list[SlowReader]) -> list[grpc.StatusCode]:
    async with asyncio.timeout(DEADLINE_S):
        return [await call.code() for reader in readers for call in reader.calls]


async def test_answers_that_a_user_does_not_take_have_limits_and_are_all_answered_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "USER_BYTES", 5 * MIB)
    most = 0
    async with serving(folder) as limits, slow_readers(folder, 3, 5) as readers:
        # given 15 answers of two MiB that are not read
        await until(lambda: len(limits._waiting) == 13)
        assert 3 * MIB < limits.unread_bytes <= 5 * MIB
        # when they are read
        for reader in readers:
            reader.reads_on.set()
        codes = asyncio.create_task(ended(readers))
        while not codes.done():
            most = max(most, limits.unread_bytes)
            await asyncio.sleep(0.001)
        # then all are answered, one after another
        assert await codes == [grpc.StatusCode.OK] * 15
        assert most <= 5 * MIB
        await until(lambda: not limits.unread_bytes and not limits._calls)


async def test_all_users_together_have_a_limit_and_one_answer_may_be_larger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "ALL_BYTES", MIB)
    async with serving(folder) as limits, slow_readers(folder, 1, 2) as (reader,):
        await until(lambda: len(limits._waiting) == 1)
        assert MIB < limits.unread_bytes < 3 * MIB
        reader.reads_on.set()
        assert await ended([reader]) == [grpc.StatusCode.OK] * 2
        assert len((await queue_of(folder / "s")).entries) == 2000


async def test_an_answer_that_is_not_taken_in_time_ends_with_its_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "TAKEN_S", 0.5)
    cut: list[str] = []

    def cut_and_note(front: Front, peer: str) -> None:
        cut.append(peer)
        front.cut(peer)

    async with serving(folder, cut_and_note) as limits, slow_readers(folder, 1, 2) as (reader,):
        await until(lambda: bool(cut))
        await until(lambda: not limits._calls and not limits.unread_bytes)
        reader.reads_on.set()
        await asyncio.wait_for(reader.lost.wait(), DEADLINE_S)
        assert set(await ended([reader])) == {grpc.StatusCode.UNAVAILABLE}
        # and others are answered
        assert len((await queue_of(folder / "s")).entries) == 2000


async def test_a_caller_that_leaves_frees_its_places(folder: Path) -> None:
    async with serving(folder) as limits:
        async with slow_readers(folder, 1, 3):
            await until(lambda: limits.unread_bytes > 5 * MIB)
        await until(lambda: not limits._calls and not limits.unread_bytes)


async def test_a_user_has_so_many_calls_over_all_connections_of_status_sock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    async def queue(_viewer: Viewer, _view: Any) -> admin_pb2.Queue:
        begun.append(1)
        return QUEUE

    monkeypatch.setattr(Viewer, "queue", queue)
    world = world_in(folder)
    world.slurm_says(PrivateData="none")
    await world.turn()
    async with serve_admin(world, folder, ""):
        async with slow_readers(folder, 4, 4, "status.sock") as readers:
            # given a user that does not take 16 answers
            await until(lambda: len(begun) == 16)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await queue_of(folder / "status.sock")
            # then further calls are refused
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (REASON, Reason.TOO_MANY_CALLS) in tuple(caught.value.trailing_metadata())
            # but not those of an operator
            assert len((await queue_of(folder / "admin.sock")).entries) == 2000
            # and when it has taken them, it may call again
            for reader in readers:
                reader.reads_on.set()
            assert set(await ended(readers)) == {grpc.StatusCode.OK}
        assert len((await queue_of(folder / "status.sock")).entries) == 2000
