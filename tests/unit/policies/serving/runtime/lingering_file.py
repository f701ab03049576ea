"""A file whose release takes as long as a user wants, sent over a Unix socket; and kernels that let users send it."""

from __future__ import annotations

import array
import socket
import struct
from collections.abc import Iterator

import pytest

from policies.serving.runtime import user_sockets

_LINGER_S = 300
_NO_OPTION = 9999


class LingeringFile:
    """A TCP socket with unsent data and SO_LINGER; the process that releases it waits until `let_go`."""

    def __init__(self) -> None:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self._file = socket.create_connection(listener.getsockname())
            self._peer, _ = listener.accept()
        self._file.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, _LINGER_S))
        self._file.setblocking(False)
        try:
            while True:
                self._file.send(bytes(1 << 16))
        except BlockingIOError:
            pass

    def send_by(self, sock: socket.socket, data: bytes = b"x", flags: int = 0) -> None:
        """Send it with these bytes, and keep no copy."""
        try:
            send_file(sock, self._file.fileno(), data, flags)
        except OSError:
            self.let_go()
            raise
        self._file.close()

    def let_go(self) -> None:
        """End the wait of a process that releases it; do nothing if that was done before."""
        if self._peer.fileno() < 0:
            return
        # A reset, not an end: the kernel drops what was not sent.
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._peer.close()
        self._file.close()


def send_file(sock: socket.socket, file: int, data: bytes = b"x", flags: int = 0) -> None:
    """Send an open file with these bytes."""
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))], flags)


def older_kernel(monkeypatch: pytest.MonkeyPatch) -> user_sockets.SocketCloser:
    """Have listeners find a kernel that cannot refuse files. Return a closer of this test's own."""
    monkeypatch.setattr(user_sockets, "_SO_PASSRIGHTS", _NO_OPTION)
    monkeypatch.setattr(user_sockets, "closer", user_sockets.SocketCloser())
    return user_sockets.closer


@pytest.fixture
def lingering() -> Iterator[LingeringFile]:
    """A file that lingers until the test ends."""
    found = LingeringFile()
    yield found
    found.let_go()
