"""The connection to the agent. A packet is sent at once or not at all.

The bare _socket is used, because programs patch the classes of `socket` and set its default timeout. Programs may also close every
descriptor that they find, and open their own under the same numbers. For this reason our descriptor gets a high number, and before
each use it is checked that it still is the socket that was opened.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import struct
from typing import Any, Dict, Optional

from .msgpack import pack, unpack

MAX_FRAME_BYTES = 65_536
_VERSION = 1
_LEAST_FD = 700
"""Above the numbers that shells, daemons and select() use, below the usual limit of 1,024 descriptors."""

_CONNECT_TIMEOUT = struct.pack("@ll", 0, 200_000)
"""0.2 s as a timeval."""


class AgentGone(Exception):  # noqa: N818 - an event, not a mistake
    """The agent has closed the connection, or has sent something that no agent sends."""


class AgentSocket:
    """One connection. Invariant: no call waits, except for the connection itself (at most 0.2 s, if many processes connect at the
    same time), and no descriptor is used but our own."""

    def __init__(self, path: str) -> None:
        """Connect. Raises AgentGone or OSError."""
        self._socket: Optional[_socket.socket] = None
        self._seq = 0
        plain = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            moved = _with_high_number(plain)
        except BaseException:
            plain.close()
            raise
        try:
            # When the agent's queue is full, connect() fails at once without a timeout; with one, processes get in one by one.
            moved.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _CONNECT_TIMEOUT)
            moved.connect(path)
            moved.setblocking(False)
            self._inode = _inode(moved.fileno())
        except BaseException:
            moved.close()
            raise
        self._socket = moved

    def send(self, kind: str, fields: Dict[str, Any]) -> bool:
        """Send a frame. Returns False if it was not sent because the agent does not read. Raises AgentGone."""
        packet = pack({"v": _VERSION, "type": kind, "seq": self._seq, **fields})
        if len(packet) > MAX_FRAME_BYTES:
            return False
        try:
            self._ours().send(packet, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise AgentGone from error
        self._seq += 1
        return True

    def receive(self) -> Optional[Dict[str, Any]]:
        """Return a frame that has arrived, or None. Raises AgentGone, also if a packet is not a frame."""
        try:
            packet = self._ours().recv(MAX_FRAME_BYTES + 1, _socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise AgentGone from error
        if not packet or len(packet) > MAX_FRAME_BYTES:
            raise AgentGone
        try:
            return unpack(packet)
        except (ValueError, RecursionError) as error:
            raise AgentGone from error

    def close(self) -> None:
        """Close this process's descriptor. In a forked child, the parent's connection stays open."""
        ours, self._socket = self._socket, None
        if ours is None:
            return
        if _inode(ours.fileno()) == self._inode:
            ours.close()
        else:
            ours.detach()

    def _ours(self) -> _socket.socket:
        if self._socket is None or _inode(self._socket.fileno()) != self._inode:
            raise AgentGone
        return self._socket


def _with_high_number(plain: _socket.socket) -> _socket.socket:
    """Return the same socket under a high descriptor number, or as it is if none is free."""
    try:
        number = fcntl.fcntl(plain.fileno(), fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
    except OSError:
        return plain
    plain.close()
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, number)


def _inode(number: int) -> int:
    """Return the inode of an open descriptor, which identifies the socket; -1 = there is none."""
    try:
        return os.fstat(number).st_ino if number >= 0 else -1
    except OSError:
        return -1
