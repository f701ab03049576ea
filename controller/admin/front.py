"""A relay before a Unix socket that many users may open: no user can occupy the connections of the others.

gRPC does not tell a server which user is at the other end of a Unix socket, and counts connections of all users together. So
users connect here, where the kernel reports their uid, and the bytes that they send are forwarded to gRPC's own socket, which
only the controller's user can open. The name of that second connection contains the uid for gRPC's side.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from pathlib import Path

from controller.base.audit import UNKNOWN, Caller
from policies.serving.peers import peer_credentials
from policies.serving.relay import Side, stop_accepting
from policies.serving.runtime.listen import remove
from policies.serving.runtime.name_service import user_name
from policies.serving.runtime.tasks.task_groups import Failed, Handlers, uncounted
from policies.serving.runtime.user_sockets import UserListener

MOST = 256
"""Maximum number of connections of all users."""
MOST_A_USER = 16
"""Maximum number of connections of one user, where all users may connect."""
STALL_S = 10.0
"""Longest time in which a user takes nothing of what waits for it."""
_LABEL = re.compile(r"unix-abstract:headway-uid-(\d+)-")


def uid_of(peer: str) -> int | None:
    """Return the uid in a connection's name, gRPC's `peer` of a call; None when the connection did not come through a Front."""
    found = _LABEL.match(peer)
    return int(found[1]) if found else None


async def caller_of(peer: str) -> Caller:
    """Return the user at the other end of a connection, by its name. Looking up a user's name may take a while.

    Without an answer in time the user has only a number.
    """
    uid = uid_of(peer)
    return UNKNOWN if uid is None else Caller(uid, await user_name(uid))


class Front:
    """Relays users' connections to gRPC's socket. Invariant: never more than `MOST` of them, nor `most_a_user` of one user;
    a file that a user sends is never waited for, and a user that takes nothing for `STALL_S` loses the connection.
    """

    def __init__(self, inner: Path, most_a_user: int = MOST_A_USER, failed: Failed = uncounted) -> None:
        """`inner` is gRPC's socket; its folder or its mode keeps other users out. `failed` counts connections that fail."""
        self._inner = inner
        self._most_a_user = most_a_user
        self._sides: set[Side] = set()
        """Connections of users. Bound: `MOST`."""
        self._opening = Handlers("admin-front", failed)
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        """Path on which it listens."""

    def listen(self, address: str) -> None:
        """Make the socket at that address, in gRPC's form. Raises OSError."""
        listener = UserListener(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(address.removeprefix("unix:"))
            listener.listen(MOST)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._path = Path(address.removeprefix("unix:"))

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: Side(self._enter, self._sides, stall_s=STALL_S),
            sock=self._listener,
            backlog=MOST,
            start_serving=False,
        )
        await self._server.start_serving()

    async def close(self) -> None:
        """Close all connections, and stop listening."""
        if self._path is not None:
            remove(self._path)
        try:
            if self._server is not None:
                await stop_accepting(self._server)
            elif self._listener is not None:
                self._listener.close()
            await self._opening.close()
        finally:
            for side in list(self._sides):
                side.end()

    def cut(self, peer: str) -> None:
        """End the connection with that name, gRPC's `peer` of a call, if it is still there."""
        for side in list(self._sides):
            if side.name and peer == f"unix-abstract:{side.name}":
                side.end()

    def _enter(self, outer: Side) -> None:
        uid = outer.number = peer_credentials(outer.transport.get_extra_info("socket"))[1]
        if len(self._sides) > MOST or sum(side.number == uid for side in self._sides) > self._most_a_user:
            outer.end()
            return
        outer.wait()
        self._opening.begin(self._join(outer, uid), broken=outer.end)

    async def _join(self, outer: Side, uid: int) -> None:
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            outer.name = f"headway-uid-{uid}-{secrets.token_hex(8)}"
            connection.bind(f"\0{outer.name}")
            await loop.sock_connect(connection, str(self._inner))
            if outer.transport.is_closing():
                connection.close()
                return
            await loop.create_connection(lambda: Side(lambda inner: inner.join(outer)), sock=connection)
        except BaseException:
            connection.close()
            raise
