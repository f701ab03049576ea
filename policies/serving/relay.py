"""The way from a client to a local server whose user is checked: an abstract Unix socket inside this process.

gRPC opens connections by itself, whenever it has lost one, and does not report which user's process answered. So it gets an address
of this process, and each of its connections is forwarded to the server only after the user at the other end was checked.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from typing import cast

from policies.errors import PeerError
from policies.serving.peers import TrustedUsers, peer_credentials, peer_uid
from policies.serving.runtime.address import Address
from policies.serving.runtime.tasks.task_groups import Failed, Handlers, uncounted
from policies.serving.runtime.user_sockets import UserListener

_OPEN_S = 1.0
"""Time for a server to accept a connection. gRPC gives an attempt as long."""
_TURNS = 3
"""Turns of the event loop from the acceptance of a connection until its protocol knows it."""
_WAITING = 16
_MOST_EARLY = 1 << 20
"""Bytes that may arrive before both halves are there; gRPC sends some hundred."""


async def stop_accepting(server: asyncio.Server) -> None:
    """Stop listening. Connections that asyncio has accepted already reach their protocols, which can close them.

    asyncio accepts a connection in one turn of the event loop, and makes its transport in a later one. If the server is closed in
    between, Python 3.11 fails to make the transport, and the connection is never closed.
    """
    loop = asyncio.get_running_loop()
    try:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    finally:
        server.close()


class Relay:
    """Carries the connections of this process to one server.

    Invariant: no byte passes, in either direction, before the server's user has been checked, and `connection` is another
    number before the first byte of another connection passes.
    """

    def __init__(self, address: Address, trusted: TrustedUsers, failed: Failed = uncounted) -> None:
        """`failed` counts connections that fail for an error of this code."""
        self._address = address
        self._trusted = trusted
        self._name = f"headway-{os.getpid()}-{secrets.token_hex(8)}"
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._opening = Handlers("relay", failed)
        self._sides: set[Side] = set()
        """Bound: the connections of this process."""
        self.target = f"unix-abstract:{self._name}"
        """Address for gRPC."""
        self.connection = 0
        """Number of the newest connection that was let through; 0 before the first."""
        self.problem = ""
        """Why the last attempt failed; empty if it did not."""
        self.refused = False
        """True if the last attempt failed because of the server's user."""

    @property
    def connected(self) -> bool:
        """True if the newest connection is open."""
        return any(side.number == self.connection for side in self._sides)

    async def start(self) -> None:
        """Listen; do nothing if it listens already."""
        async with self._starting:
            if self._server is None:
                listener = UserListener(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                listener.bind(f"\0{self._name}")
                # In two steps: were it cancelled after it has begun to listen, the name would be taken, and no server known.
                self._server = await asyncio.get_running_loop().create_unix_server(
                    lambda: Side(self._enter), sock=listener, backlog=_WAITING, start_serving=False
                )
                await self._server.start_serving()

    async def close(self) -> None:
        """End every connection, and listen no more."""
        try:
            if self._server is not None:
                await stop_accepting(self._server)
            await self._opening.close()
        finally:
            for side in list(self._sides):
                side.end()

    def _enter(self, inner: Side) -> None:
        """Take a connection of gRPC."""
        pid, _ = peer_credentials(inner.transport.get_extra_info("socket"))
        if pid != os.getpid():  # an abstract socket has no mode: any process can find it
            inner.transport.abort()
            return
        inner.wait()
        self._opening.begin(self._open(inner), broken=inner.transport.abort)

    async def _open(self, inner: Side) -> None:
        """Connect to the server and let bytes through, or remember why not.

        What is known of the last attempt stays until this one has ended: a call may fail meanwhile, and then it has that reason.
        """
        try:
            async with asyncio.timeout(_OPEN_S):
                connection = await self._connect()
        except TimeoutError:
            self.problem, self.refused = f"no connection was accepted within {_OPEN_S:g} s", False
        except PeerError as error:
            self.problem, self.refused = str(error), True
        except OSError as error:
            self.problem, self.refused = os.strerror(error.errno) if error.errno else str(error), False
        except Exception as error:  # noqa: BLE001 - any error ends this connection alone, and the caller gets it
            self.problem, self.refused = f"{type(error).__name__}: {error}", False
        else:
            self.problem, self.refused = "", False
            await self._join(inner, connection)
            return
        inner.transport.abort()

    async def _connect(self) -> socket.socket:
        path, host = self._address.path, str(self._address.host)
        family = socket.AF_UNIX if path is not None else socket.AF_INET6 if ":" in host else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            there = str(path) if path is not None else (host, self._address.port)
            await asyncio.get_running_loop().sock_connect(connection, there)
            if path is None:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._trusted.check(await peer_uid(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _join(self, inner: Side, connection: socket.socket) -> None:
        if inner.transport.is_closing():
            connection.close()
            return
        self.connection += 1
        outer = Side(lambda side: side.join(inner), self._sides, self.connection)
        try:
            await asyncio.get_running_loop().create_connection(lambda: outer, sock=connection)
        except BaseException:
            connection.close()
            raise


class Side(asyncio.Protocol):
    """One half of a relayed connection: what it reads is written to the other half, no faster than that takes it."""

    def __init__(
        self,
        made: Callable[[Side], None],
        among: set[Side] | None = None,
        number: int = 0,
        *,
        stall_s: float | None = None,
    ) -> None:
        """`made` is called with the half when it is connected; while it is, it is in `among`. Both halves are ended when the
        other end of this one has taken nothing for `stall_s` of what waits for it; None: they are not."""
        self._made = made
        self._among = set[Side]() if among is None else among
        self._other: Side | None = None
        self._early = bytearray()
        """What was read before `join`. Bound: `_MOST_EARLY`, and one piece."""
        self.number = number
        self.name = ""
        """Name of the connection, for those that make it."""
        self._stall_s = stall_s
        self._stall: asyncio.TimerHandle | None = None
        """End of the time for the other end to take something; None: no bytes wait for it, or it has no limit."""
        self._left_bytes = 0
        """Bytes that it had yet to take when that time began."""
        self.transport: asyncio.Transport

    def wait(self) -> None:
        """Read no more until `join`. To be called when the half is connected."""
        # Not at once: asyncio before 3.11.3 begins to read after connection_made, whatever that has said.
        asyncio.get_running_loop().call_soon(self._pause)

    def _pause(self) -> None:
        if self._other is None and not self.transport.is_closing():
            self.transport.pause_reading()

    def join(self, other: Side) -> None:
        """Let bytes through in both directions."""
        self._other, other._other = other, self
        for one, another in ((self, other), (other, self)):
            if one._early:
                another.transport.write(bytes(one._early))
                one._early.clear()
        other.transport.resume_reading()

    def end(self) -> None:
        """Close both halves without sending what is left: a client that does not read would keep its half open."""
        for side in (self, self._other):
            if side is not None:
                side.transport.abort()
                side._among.discard(side)  # the event loop calls connection_lost in its next turn only

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = cast("asyncio.Transport", transport)
        self._among.add(self)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._other is not None:
            self._other.transport.write(data)
            return
        self._early += data
        if len(self._early) > _MOST_EARLY:
            self.end()

    def pause_writing(self) -> None:
        """Called by the event loop."""
        self._watch_stall()
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self._end_stall()
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """Called by the event loop."""
        self._among.discard(self)
        self._end_stall()
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.close()

    def _watch_stall(self) -> None:
        if self._stall_s is not None:
            self._left_bytes = self.transport.get_write_buffer_size()
            self._stall = asyncio.get_running_loop().call_later(self._stall_s, self._check_stall)

    def _check_stall(self) -> None:
        # While writing is paused the other half reads nothing, so that nothing is added.
        if self.transport.get_write_buffer_size() < self._left_bytes:
            self._watch_stall()
        else:
            self.end()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
