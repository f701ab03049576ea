"""Servers in the controller's place, as the test wants them, and the bytes that they may send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is in no table of HPACK."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


DATA, HEADERS, RESET, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
SETTLED = frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, 1, 0, b"")
STATUS_200 = b"\x88"
TYPE = literal(b"content-type", b"application/grpc")
BEGINNING = SETTLED + frame(HEADERS, END_HEADERS, 1, STATUS_200 + TYPE)
"""The beginning of an answer to the first call of a connection."""


def message(body: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A message of gRPC in a frame; `length` is what it says of itself."""
    said = len(body) if length is None else length
    return frame(DATA, 0, 1, bytes([compressed]) + said.to_bytes(4, "big") + body)


def trailers(status: bytes) -> bytes:
    """The end of an answer."""
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"grpc-status", status))


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(path: Path, handler: Handler) -> AsyncIterator[None]:
    """A server of the test's own in the controller's place.

    It accepts connections itself: asyncio's server may have accepted one that no task has yet when it is closed.
    """
    handling: set[asyncio.Task[None]] = set()
    connections: list[socket.socket] = []
    loop = asyncio.get_running_loop()

    async def serve(connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            with suppress(OSError, EOFError):
                await handler(reader, writer)
        finally:
            writer.close()

    def accept() -> None:
        with suppress(OSError):  # the other side has gone
            connection, _ = listener.accept()
            connection.setblocking(False)
            connections.append(connection)
            handling.add(asyncio.create_task(serve(connection)))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        listener.setblocking(False)
        loop.add_reader(listener, accept)
        try:
            yield
        finally:
            loop.remove_reader(listener)
            for task in handling:
                task.cancel()
            await asyncio.gather(*handling, return_exceptions=True)
            await asyncio.sleep(0)  # the transports let go of their sockets
            for connection in connections:
                connection.close()
