"""The user at the other end of a local connection, as the kernel reports it.

For a Unix socket the kernel reports the user (SO_PEERCRED). For loopback TCP it is the owner of the other socket of the same
connection, read from /proc/self/net/tcp. A connection that the server has not accepted yet has no owner; the code waits for it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from policies.errors import PeerError
from policies.serving.runtime.name_service import user_names

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1
_NAMES_WITHIN_S = 0.3
"""Time to look up names for a message, which is not to make the connection late: then it has only the numbers."""
_UID_FIELD = 7
_INODE_FIELD = 9
_CREDENTIALS = struct.Struct("3i")
_NOT_CONNECTED = -1
"""The kernel's uid for the other end of a Unix socket that has none. With a full backlog connect() says EAGAIN, which asyncio takes
for a connection under way, and then for one that is made. (The process id says less: it is 0 for every other PID namespace.)"""


@dataclass(frozen=True, slots=True)
class TrustedUsers:
    """The users whose servers are trusted. Invariant: `check` returns only for a uid in `uids`."""

    uids: frozenset[int]
    mend: str
    """End of the error message: how to make another user a trusted one."""

    async def check(self, uid: int) -> None:
        """Raise PeerError unless the user is trusted."""
        if uid in self.uids:
            return
        names = await user_names({uid, *self.uids}, _NAMES_WITHIN_S)
        trusted = ", ".join(_shown(each, names[each]) for each in sorted(self.uids))
        raise PeerError(
            f"its process belongs to {_shown(uid, names[uid])}, and only servers of {trusted} are trusted; {self.mend}"
        )


def _shown(uid: int, name: str) -> str:
    return f"{name} (uid {uid})" if name else f"uid {uid}"


async def peer_uid(connection: socket.socket) -> int:
    """Return the user whose process accepted this connection; wait until one has. Raises PeerError, and OSError when a Unix
    socket is not connected."""
    if connection.family == socket.AF_UNIX:
        _, owner = peer_credentials(connection)
        if owner == _NOT_CONNECTED:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return owner
    pause_s = _FIRST_PAUSE_S
    while True:
        uid = await asyncio.to_thread(_tcp_owner, connection.getpeername()[:2], connection.getsockname()[:2])
        if uid is not None:
            return uid
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return process id and uid of the other end of a Unix socket."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(packed)
    return pid, uid


def _tcp_owner(server: tuple[str, int], client: tuple[str, int]) -> int | None:
    """Return the owner of the server's end of that connection; None while it has none."""
    if server == client:  # a port without a listener can connect to itself
        raise PeerError("no server listens there")
    try:
        return owner_in(b"".join(table.read_bytes() for table in _TABLES if table.exists()), server, client)
    except OSError as error:
        raise PeerError(f"the owner of the connection cannot be read: {error}") from error


def owner_in(table: bytes, server: tuple[str, int], client: tuple[str, int]) -> int | None:
    """Return the owner of the socket at `server` that is connected to `client`; None when it is missing or not accepted yet."""
    for local, remote in zip(_forms(server), _forms(client), strict=True):
        start = table.find(f" {local} {remote} ".encode())
        if start < 0:
            continue
        fields = table[start:].split(b"\n", 1)[0].split()
        uid, inode = int(fields[_UID_FIELD - 1]), int(fields[_INODE_FIELD - 1])
        if inode:
            return uid
    return None


def _forms(end: tuple[str, int]) -> Iterable[str]:
    """Return an address as the kernel's tables write it; IPv4 also in the form of sockets for both families."""
    host, port = ipaddress.ip_address(end[0]), end[1]
    packed = [host.packed]
    if host.version == 4:
        packed.append(ipaddress.IPv6Address(f"::ffff:{host}").packed)
    return [f"{_words(each)}:{port:04X}" for each in packed]


def _words(packed: bytes) -> str:
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
