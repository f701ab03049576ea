"""Halves of relayed connections: nothing that a client sends before both are there is lost."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from policies.serving.peers import TrustedUsers
from policies.serving.relay import Relay, Side, stop_accepting
from policies.serving.runtime.address import parse_address
from tests.unit.policies.serving.runtime.lingering_file import LingeringFile, lingering, older_kernel

__all__ = ["lingering"]


async def connected(path: Path, stall_s: float | None = None) -> tuple[Side, socket.socket]:
    """A half that waits, and the client at its other end."""
    made: asyncio.Future[Side] = asyncio.get_running_loop().create_future()
    server = await asyncio.get_running_loop().create_unix_server(lambda: Side(made.set_result, stall_s=stall_s), path)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    await asyncio.get_running_loop().sock_connect(client, str(path))
    side = await made
    server.close()
    return side, client


async def test_data_that_arrives_before_the_other_half_is_connected_is_passed_on(tmp_path: Path) -> None:
    # given a half that has read before it could learn that it has to wait, as with Python 3.11.2
    first, client = await connected(tmp_path / "first")
    first.data_received(b"PRI * HTTP/2.0")
    first.wait()
    await asyncio.sleep(0.01)
    assert not first.transport.is_reading()
    # when the other half comes
    second, server = await connected(tmp_path / "second")
    second.join(first)
    # then it gets everything, in order
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, b", and more")
    found = b""
    while len(found) < 24:
        found += await asyncio.wait_for(loop.sock_recv(server, 100), 30.0)
    assert found == b"PRI * HTTP/2.0, and more"
    first.end()
    second.end()
    client.close()
    server.close()


async def test_a_client_that_sends_too_much_before_that_is_disconnected(tmp_path: Path) -> None:
    first, client = await connected(tmp_path / "first")
    first.data_received(bytes(1 << 20))
    assert not first.transport.is_closing()
    first.data_received(b"x")
    assert first.transport.is_closing()
    client.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("begins", [True, False])
async def test_a_half_that_was_joined_at_once_goes_on_reading(tmp_path: Path, begins: bool) -> None:
    first, client = await connected(tmp_path / "first")
    second, server = await connected(tmp_path / "second")
    first.wait()
    (first if begins else second).join(second if begins else first)
    await asyncio.sleep(0.01)
    assert first.transport.is_reading()
    assert second.transport.is_reading()
    first.end()
    second.end()
    client.close()
    server.close()


async def test_the_end_closes_the_half_whose_client_does_not_read(tmp_path: Path) -> None:
    first, client = await connected(tmp_path / "first")
    second, server = await connected(tmp_path / "second")
    second.join(first)
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(loop.sock_sendall(server, bytes(8 << 20)))
    while not first.transport.get_write_buffer_size():
        await asyncio.sleep(0.001)
    second.end()
    with suppress(ConnectionError):
        await asyncio.wait_for(sending, 30)
    assert first.transport.get_write_buffer_size() == 0
    assert first.transport.is_closing()
    client.close()
    server.close()


@pytest.mark.parametrize("stall_s", [3600.0, None])
async def test_a_half_whose_other_end_takes_nothing_is_ended_where_that_has_a_limit(
    tmp_path: Path, stall_s: float | None
) -> None:
    loop = asyncio.get_running_loop()
    side, client = await connected(tmp_path / "s", stall_s)
    side.transport.write(b"x" * (4 << 20))
    assert (side._stall is not None) == (stall_s is not None)
    if stall_s is not None:
        # one that takes a little has the time again
        before = side.transport.get_write_buffer_size()
        async with asyncio.timeout(60.0):
            while side.transport.get_write_buffer_size() == before:
                await loop.sock_recv(client, 1 << 16)
        side._check_stall()
        assert not side.transport.is_closing()
        side._check_stall()
        assert side.transport.is_closing()
    else:
        side.end()
    await asyncio.sleep(0)
    assert side._stall is None
    client.close()


async def test_a_half_whose_other_end_has_taken_what_waited_has_no_time_limit(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    side, client = await connected(tmp_path / "s", 3600.0)
    side.transport.write(b"x" * (4 << 20))
    async with asyncio.timeout(60.0):
        while side._stall is not None:
            await loop.sock_recv(client, 1 << 16)
    assert not side.transport.is_closing()
    side.end()
    client.close()


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_accepted_as_the_server_ends_is_closed(tmp_path: Path, turns: int) -> None:
    loop, sides = asyncio.get_running_loop(), set[Side]()
    server = await loop.create_unix_server(lambda: Side(lambda _: None, sides), tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop_accepting(server)
        for side in list(sides):
            side.end()
        # without that, Python 3.11 leaves it open for ever if it ends between the acceptance and the transport
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(loop.sock_recv(client, 1), 30) == b""
    assert not server.is_serving()


async def test_a_stranger_that_sends_a_file_to_the_relay_does_not_stop_it(
    monkeypatch: pytest.MonkeyPatch, lingering: LingeringFile
) -> None:
    """The relay's abstract socket has no mode: any process can connect."""
    closer = older_kernel(monkeypatch)
    monkeypatch.setattr("policies.serving.relay.peer_credentials", lambda _connection: (1, 65534))
    relay = Relay(parse_address("unix:///nowhere"), TrustedUsers(frozenset(), ""))
    await relay.start()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect("\0" + relay.target.removeprefix("unix-abstract:"))
        lingering.send_by(stranger)
        async with asyncio.timeout(60.0):
            while not closer.held:
                await asyncio.sleep(0.001)
    await relay.close()
    assert closer.held > 0  # the file is not released yet
