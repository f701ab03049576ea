"""The connection to the agent: packets, sent at once or not at all.

The bare _socket is used, as programs patch the classes of `socket` and set its default timeout. They may also close every
descriptor that they find, and open their own under the same numbers. So ours is moved out of the way of the usual ones, and
before every use it is looked whether it is still the socket that was opened.
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
"""Above what shells, daemons and select() use, below the usual limit of 1,024 descriptors."""

_AT_THE_DOOR = struct.pack("@ll", 0, 200_000)
"""0.2 s as a timeval."""


class Gone(Exception):  # noqa: N818 - an event, not a mistake
    """The agent is away, or says what no agent would say."""


class Line:
    """One connection. Invariant: nothing here waits, but for a fifth of a second at a crowded door, and no descriptor but our own
    is ever touched."""

    def __init__(self, path: str) -> None:
        """Connects. Raises Gone or OSError."""
        self._socket: Optional[_socket.socket] = None
        self._seq = 0
        plain = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            moved = _out_of_the_way(plain)
        except BaseException:
            plain.close()
            raise
        try:
            # A full queue at the agent's door turns away at once who does not wait, and lets those in who do, one by one.
            moved.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _AT_THE_DOOR)
            moved.connect(path)
            moved.setblocking(False)
            self._inode = _inode(moved.fileno())
        except BaseException:
            moved.close()
            raise
        self._socket = moved

    def send(self, kind: str, fields: Dict[str, Any]) -> bool:
        """Sends a frame. False: it did not go, as the agent does not read. Raises Gone."""
        packet = pack({"v": _VERSION, "type": kind, "seq": self._seq, **fields})
        if len(packet) > MAX_FRAME_BYTES:
            return False
        try:
            self._ours().send(packet, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise Gone from error
        self._seq += 1
        return True

    def receive(self) -> Optional[Dict[str, Any]]:
        """A frame that has come, or None. Raises Gone, also for what is no frame."""
        try:
            packet = self._ours().recv(MAX_FRAME_BYTES + 1, _socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise Gone from error
        if not packet or len(packet) > MAX_FRAME_BYTES:
            raise Gone
        try:
            return unpack(packet)
        except (ValueError, RecursionError) as error:
            raise Gone from error

    def close(self) -> None:
        """Also in a forked child: the parent's connection stays open."""
        ours, self._socket = self._socket, None
        if ours is None:
            return
        if _inode(ours.fileno()) == self._inode:
            ours.close()
        else:
            ours.detach()

    def _ours(self) -> _socket.socket:
        if self._socket is None or _inode(self._socket.fileno()) != self._inode:
            raise Gone
        return self._socket


def _out_of_the_way(plain: _socket.socket) -> _socket.socket:
    """The same socket under a high number, or itself where none is to be had."""
    try:
        number = fcntl.fcntl(plain.fileno(), fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
    except OSError:
        return plain
    plain.close()
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, number)


def _inode(number: int) -> int:
    """Which socket a descriptor is; -1: none."""
    try:
        return os.fstat(number).st_ino if number >= 0 else -1
    except OSError:
        return -1
