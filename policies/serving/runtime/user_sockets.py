"""Unix sockets to which other users connect: no user can make the process wait for the release of a file.

A process can send open files over a Unix socket (SCM_RIGHTS) and close its own copies. A process that reads the message without
room for files, or closes the socket with the message unread, releases the file, and the kernel may wait in that call for as long as
the user chooses: for a TCP socket with SO_LINGER whose peer never reads, or for a file system that does not answer.

From Linux 6.16 on the kernel refuses such messages if the listener asks for that. On older kernels messages are looked at before
they are read, and a socket that may hold a file is closed in a thread.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SO_PASSRIGHTS = 83
"""Python has no name for it."""
_MAX_HELD = 512
_CREDENTIALS = struct.Struct("3i")
_UNKNOWN_USER = -1


class PassedFileError(ConnectionAbortedError):
    """The other side has sent an open file. It stays unread; the socket can only be closed."""


class SocketCloser:
    """Closes sockets that may hold a file of a user, in threads.

    Invariant: `close` never waits; one thread for each user, so that none waits for a file of another. Threads that wait for
    ever do not keep the process from ending.
    """

    def __init__(self, most: int = _MAX_HELD) -> None:
        """`most` is the number of held sockets from which on it is `full`."""
        self._most = most
        self._lock = threading.RLock()  # a socket may be closed by the collector of garbage, at any time
        self._waiting: dict[int, deque[int]] = {}
        """Descriptors to close, by uid. Bound: `most`, from which on no connection is accepted, and those that are open then."""
        self._running: set[int] = set()
        """Uids that have a thread. Bound: the keys of `_waiting`."""
        self.held = 0
        """Number of sockets that are not closed yet."""

    @property
    def full(self) -> bool:
        """True while so many sockets are held that no more should be accepted."""
        return self.held >= self._most

    def close(self, uid: int, file: int) -> None:
        """Close this descriptor, which another process of that user may have filled."""
        with self._lock:
            self.held += 1
            self._waiting.setdefault(uid, deque()).append(file)
            if uid in self._running:
                return
            self._running.add(uid)
        try:
            threading.Thread(target=self._run, args=(uid,), name="socket-closer", daemon=True).start()
        except RuntimeError:  # the process has no thread left: the next one of this user closes this one too
            with self._lock:
                self._running.discard(uid)

    def _run(self, uid: int) -> None:
        while (file := self._next(uid)) is not None:
            with suppress(OSError):
                os.close(file)
            with self._lock:
                self.held -= 1

    def _next(self, uid: int) -> int | None:
        with self._lock:
            if self._waiting[uid]:
                return self._waiting[uid].popleft()
            del self._waiting[uid]
            self._running.discard(uid)
            return None


closer = SocketCloser()
"""The one of this process."""


class UserSocket(socket.socket):
    """A connection of another user's process.

    Invariant: neither reading nor closing waits for the release of a file. `recv` and `recv_into` raise PassedFileError instead.
    """

    takes_files = True
    """False if the kernel refuses messages with files."""

    @classmethod
    def of(cls, plain: socket.socket, *, takes_files: bool) -> UserSocket:
        """Take over an accepted connection, from which nothing has been read."""
        found = cls(plain.family, plain.type, plain.proto, plain.detach())
        found.takes_files = takes_files
        if takes_files and found.type == socket.SOCK_STREAM:
            # Otherwise an urgent byte, and a file with it, would be dropped unseen by a read of what is behind it.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        return found

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """As that of socket.socket."""
        if self.takes_files:
            bufsize = self._harmless(bufsize)
        return super().recv(bufsize, flags)

    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """As that of socket.socket. Of a stream it may read less than `nbytes`."""
        if self.takes_files:
            found = self._harmless((nbytes or memoryview(buffer).nbytes) if self.type == socket.SOCK_STREAM else 1)
            if self.type == socket.SOCK_STREAM:
                if not found:
                    return 0
                nbytes = found
        return super().recv_into(buffer, nbytes, flags)

    def _harmless(self, size: int) -> int:
        """Return how many of the next bytes can be read without a file among them. Raises PassedFileError for none."""
        found, _, flags, _ = self.recvmsg(size, 0, socket.MSG_PEEK)
        if flags & socket.MSG_CTRUNC:
            raise PassedFileError(errno.ECONNABORTED, "an open file was sent")
        return len(found)

    def close(self) -> None:
        """End the connection at once; on older kernels the descriptor may be closed a moment later."""
        if self.takes_files and self.fileno() >= 0 and not _emptied(self):
            closer.close(_owner(self), self.detach())
        super().close()


class UserListener(socket.socket):
    """A Unix socket to which users connect: `accept` returns a UserSocket.

    Invariant: it accepts no connection while too many hold a file: then `accept` fails as if the process had no descriptors left.
    """

    takes_files = True
    """False if the kernel refuses messages with files on its connections; known from `listen` on."""

    def listen(self, backlog: int = 128, /) -> None:
        """As that of socket.socket."""
        try:
            self.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)  # connections inherit it
        except OSError:  # a kernel before 6.16
            self.takes_files = True
        else:
            self.takes_files = False
        super().listen(backlog)

    def accept(self) -> tuple[socket.socket, Any]:
        """As that of socket.socket."""
        if closer.full:
            raise OSError(errno.EMFILE, "too many connections wait for the release of files that users have sent")
        plain, address = super().accept()
        return UserSocket.of(plain, takes_files=self.takes_files), address

    def close(self) -> None:
        """Listen no more. Connections that were not accepted are dropped, with what was sent on them."""
        if self.takes_files and self.fileno() >= 0:
            with suppress(OSError):
                self.shutdown(socket.SHUT_RDWR)
            closer.close(_UNKNOWN_USER, self.detach())
        super().close()


def _emptied(sock: socket.socket) -> bool:
    """End the connection in both directions. Return True when nothing is left to be read, and nothing more can arrive."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
        if sock.type != socket.SOCK_STREAM:
            # Each message then has a part for which no room is given, so that an empty message is not taken for none.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        data, _, flags, _ = sock.recvmsg(1, 0, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:  # such as a reset, which does not say what is left
        return False
    return not data and not flags & socket.MSG_CTRUNC


def _owner(sock: socket.socket) -> int:
    """Return the uid of the other side."""
    try:
        packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return _UNKNOWN_USER
    return int(_CREDENTIALS.unpack(packed)[1])
