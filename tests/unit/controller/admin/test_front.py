"""The relay before gRPC's socket, and users that send open files whose release hangs."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from controller.admin.front import Front
from tests.unit.policies.serving.runtime.lingering_file import LingeringFile, lingering, older_kernel

__all__ = ["lingering"]
DEADLINE_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@asynccontextmanager
async def front_in(folder: Path, most_a_user: int = 16) -> AsyncIterator[Path]:
    """Path of a Front before a server that echoes."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        open_ones.remove(writer)

    inner = await asyncio.start_unix_server(echo, folder / "inner.sock")
    front = Front(folder / "inner.sock", most_a_user)
    front.listen(f"unix:{folder / 'front.sock'}")
    await front.start()
    try:
        yield folder / "front.sock"
    finally:
        await front.close()
        inner.close()
        await until(lambda: not open_ones)


async def echoed(path: Path, data: bytes) -> bytes:
    """Return what comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    found = await asyncio.wait_for(reader.readexactly(len(data)), DEADLINE_S)
    writer.close()
    await writer.wait_closed()
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def user_of(path: Path) -> socket.socket:
    user = socket.socket(socket.AF_UNIX)
    user.connect(str(path))
    return user


@pytest.mark.parametrize("most_a_user", [16, 0], ids=["relayed", "refused"])
async def test_a_user_that_sends_a_file_loses_the_connection_and_others_are_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lingering: LingeringFile, most_a_user: int
) -> None:
    closer = older_kernel(monkeypatch)
    async with front_in(folder, most_a_user) as path:
        with user_of(path) as user:
            lingering.send_by(user)
            await until(lambda: closer.held == 1)
            if most_a_user:
                assert await echoed(path, b"hello") == b"hello"
            await asyncio.sleep(0)
            assert closer.held == 1  # the file is not released yet
        lingering.let_go()
        await until(lambda: closer.held == 0)


@pytest.mark.parametrize("older", [False, True])
async def test_much_data_is_relayed_whole(folder: Path, monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    if older:
        older_kernel(monkeypatch)
    data = bytes(range(256)) * 4096
    async with front_in(folder) as path:
        assert await echoed(path, data) == data


async def test_a_user_that_takes_nothing_loses_the_connection(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.admin.front.STALL_S", 0.3)
    loop = asyncio.get_running_loop()
    async with front_in(folder) as path:
        with user_of(path) as user:
            user.setblocking(False)
            # when it sends more than fits into all buffers on the way there and back
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        await loop.sock_sendall(user, b"x" * (1 << 16))
            # then others are served
            assert await echoed(path, b"hello") == b"hello"


async def test_a_connection_is_cut_by_its_name(folder: Path) -> None:
    names = asyncio.Queue[str]()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        names.put_nowait(f"unix-abstract:{writer.get_extra_info('peername')[1:].decode()}")
        await reader.read()
        writer.close()

    inner = await asyncio.start_unix_server(note, folder / "inner.sock")
    front = Front(folder / "inner.sock")
    front.listen(f"unix:{folder / 'front.sock'}")
    await front.start()
    async with asyncio.timeout(DEADLINE_S):
        first, first_writer = await asyncio.open_unix_connection(folder / "front.sock")
        name = await names.get()
        second, second_writer = await asyncio.open_unix_connection(folder / "front.sock")
        await names.get()
        for no_name in ("", "unix:", "unix-abstract:"):
            front.cut(no_name)
        front.cut(name)
        with suppress(ConnectionError):
            assert await first.read() == b""
        assert not second.at_eof()
        await front.close()
        with suppress(ConnectionError):
            assert await second.read() == b""
    for each in (first_writer, second_writer):
        each.close()
    inner.close()
