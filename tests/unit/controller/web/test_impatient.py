"""Clients that send nothing, send slowly or do not read take no place of the page from others for long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from controller.web import impatient
from controller.web.run import listen, server_config
from controller.web.settings import ListenAddress

PLACES = 12
WITHIN_S = 60.0
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Page:
    """A small page on a real socket."""

    def __init__(self) -> None:
        self.asked = 0
        self.large_bytes = 32 << 20
        """More than the buffers of a connection hold."""
        self.answering = 0
        self.go_on = asyncio.Event()
        routes = [
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
            Route("/echo", self._echo, methods=["POST"]),
            Route("/large", self._large),
            Route("/slow", self._slow),
        ]
        self.server = uvicorn.Server(server_config(Starlette(routes=routes), PLACES))
        self.listener = listen(ListenAddress(host="127.0.0.1", port=0))

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections)

    async def connect(self, said: bytes = b"") -> Connection:
        reader, writer = await asyncio.open_connection(*self.listener.getsockname())
        writer.write(said)
        return reader, writer

    @staticmethod
    async def _echo(request: Request) -> Response:
        return Response(await request.body())

    async def _large(self, _request: Request) -> Response:
        self.asked += 1
        return PlainTextResponse("x" * self.large_bytes)

    async def _slow(self, _request: Request) -> Response:
        self.asked += 1
        self.answering += 1
        try:
            await self.go_on.wait()
        finally:
            self.answering -= 1
        return PlainTextResponse("done\n")


@asynccontextmanager
async def serving() -> AsyncIterator[Page]:
    page = Page()
    serving = asyncio.create_task(page.server.serve(sockets=[page.listener]))
    try:
        yield page
    finally:
        page.go_on.set()
        page.server.should_exit = True
        await asyncio.wait_for(serving, WITHIN_S)
        page.listener.close()


async def hanging(page: Page, stack: AsyncExitStack, said: bytes = b"") -> Connection:
    """Connect, say this, and stay."""
    reader, writer = await page.connect(said)
    stack.callback(writer.close)
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection ends."""
    found = b""
    async with asyncio.timeout(WITHIN_S):
        with suppress(ConnectionError):
            while got := await reader.read(65_536):
                found += got
    return found


async def answer(connection: Connection) -> bytes:
    """Return the answer to a request, with a body of three bytes."""
    async with asyncio.timeout(WITHIN_S):
        head = await connection[0].readuntil(b"\r\n\r\n")
        return head.partition(b"\r\n")[0] + b" " + await connection[0].readexactly(3)


async def until(condition: object) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTT", b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", GET]
)
async def test_silent_connections_keep_no_reader_out(said: bytes) -> None:
    async with serving() as page, AsyncExitStack() as stack:
        clients = [await hanging(page, stack, said) for _ in range(5 * PLACES)]
        reader, writer = await page.connect(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        assert page.open <= PLACES
        for client, _ in clients[: -2 * PLACES]:
            await rest(client)


async def test_a_request_that_comes_byte_by_byte_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impatient, "REQUEST_S", 0.3)
    async with serving() as page, AsyncExitStack() as stack:
        reader, writer = await hanging(page, stack, b"GET / HTTP/1.1\r\nX: ")
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"x")
            await asyncio.sleep(0.01)
        assert await ended == b""
        await until(lambda: page.open == 0)


async def test_a_second_request_that_never_ends_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impatient, "REQUEST_S", -14.0)  # with the 15 s between two requests: a second
    monkeypatch.setattr(impatient.ImpatientProtocol, "connection_made", patiently_made)
    async with serving() as page, AsyncExitStack() as stack:
        connection = await hanging(page, stack, GET)
        assert await answer(connection) == b"HTTP/1.1 200 OK ok\n"
        connection[1].write(b"GET / HT")
        assert await rest(connection[0]) == b""


def patiently_made(self: impatient.ImpatientProtocol, transport: asyncio.Transport) -> None:
    """Begin a connection whose first request has all the time there is."""
    impatient.H11Protocol.connection_made(self, transport)
    self._wait(3600.0)


async def test_a_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impatient, "ANSWER_S", 0.3)
    monkeypatch.setattr(impatient, "STALL_S", 3600.0)
    monkeypatch.setattr(impatient, "REQUEST_S", -14.7)
    monkeypatch.setattr(impatient.ImpatientProtocol, "connection_made", patiently_made)
    async with serving() as page, AsyncExitStack() as stack:
        _, writer = await hanging(page, stack, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: page.asked == 1)
        await until(lambda: page.open == 0)


async def test_a_client_that_takes_nothing_is_cut_before_the_time_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(impatient, "STALL_S", 0.3)
    monkeypatch.setattr(impatient, "REQUEST_S", 3600.0)
    monkeypatch.setattr(impatient, "ANSWER_S", 3600.0)
    async with serving() as page, AsyncExitStack() as stack:
        _, writer = await hanging(page, stack, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: page.asked == 1)
        await until(lambda: page.open == 0 and not page.server.server_state.tasks)


async def stalled(page: Page, stack: AsyncExitStack) -> tuple[impatient.ImpatientProtocol, Connection]:
    """Ask for a large answer and do not read on; return the server's end, and the client's, when the answer waits."""
    connection = await hanging(page, stack, b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    connection[1].transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: page.open == 1)
    (protocol,) = page.server.server_state.connections
    assert isinstance(protocol, impatient.ImpatientProtocol)
    await until(lambda: protocol._stall is not None)
    return protocol, connection


async def test_a_client_that_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("STALL_S", "REQUEST_S", "ANSWER_S"):
        monkeypatch.setattr(impatient, limit, 3600.0)
    async with serving() as page, AsyncExitStack() as stack:
        # given a client that has taken a single byte, when its time is up: then it has another such time
        protocol, (reader, writer) = await stalled(page, stack)
        first = protocol._stall
        protocol._left_bytes = protocol.transport.get_write_buffer_size() + 1
        protocol._check_stall()
        assert page.open == 1
        assert protocol._stall is not None
        assert protocol._stall is not first
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await rest(reader)) > page.large_bytes
        await until(lambda: page.open == 0)
        # and one that has taken none is cut
        protocol, _ = await stalled(page, stack)
        protocol._left_bytes = protocol.transport.get_write_buffer_size()
        protocol._check_stall()
        assert page.open == 0


async def never_reading(page: Page, stack: AsyncExitStack) -> None:
    """Send many requests at once, with a small buffer for the answers, and read none of them."""
    client = socket.socket()
    stack.callback(client.close)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, page.listener.getsockname())
    await loop.sock_sendall(client, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 10)


async def test_clients_that_do_not_read_keep_no_reader_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impatient, "UNREAD_S", 0.0)
    async with serving() as page, AsyncExitStack() as stack:
        page.large_bytes = 8 << 20  # these clients have small buffers
        for number in range(1, 3 * PLACES):  # one after another, so that each is asked before the next one
            await never_reading(page, stack)
            await until(lambda number=number: page.asked >= number)
        for _ in range(3):
            reader, writer = await page.connect(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await rest(reader)).startswith(b"HTTP/1.1 200 OK")
            writer.close()


async def test_a_client_that_has_read_lately_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impatient, "UNREAD_S", 1000.0)
    async with serving() as page, AsyncExitStack() as stack:
        page.large_bytes = 8 << 20  # these clients have small buffers
        for number in range(1, PLACES):
            await never_reading(page, stack)
            await until(lambda number=number: page.asked >= number)
        reader, writer = await page.connect(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 503")
        writer.close()


async def test_a_request_ends_with_its_connection() -> None:
    async with serving() as page:
        for _ in range(2):
            clients = [await page.connect(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(PLACES - 2)]
            await until(lambda: page.answering == PLACES - 2)
            # When the clients go, their requests do not keep the places
            for _, writer in clients:
                writer.close()
            await until(lambda: page.answering == 0 and not page.server.server_state.tasks)
        reader, writer = await page.connect(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_requests_that_are_being_answered_are_not_interrupted() -> None:
    async with serving() as page, AsyncExitStack() as stack:
        slow = [await hanging(page, stack, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(PLACES - 1)]
        await until(lambda: page.asked == PLACES - 1)
        for _ in range(3 * PLACES):
            await hanging(page, stack)
        page.go_on.set()
        for client in slow:
            assert await answer(client) == b"HTTP/1.1 200 OK don"


async def test_requests_one_after_another_and_in_one_packet_are_answered() -> None:
    async with serving() as page, AsyncExitStack() as stack:
        connection = await hanging(page, stack, GET + GET)
        for _ in range(2):
            assert await answer(connection) == b"HTTP/1.1 200 OK ok\n"
        connection[1].write(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na")
        await asyncio.sleep(0.01)
        connection[1].write(b"bc")
        assert await answer(connection) == b"HTTP/1.1 200 OK abc"
