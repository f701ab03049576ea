"""A connection to a server that can be cut, or stop answering, at any byte."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Forwards connections from its own loopback port. At first it is up."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._silent = False
        self._left: int | None = None
        self.calls = 0
        """Number of connections while it was up, or silent."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Break all open connections, and accept no more."""
        with self._lock:
            self._break(self._listener)  # wakes the thread that waits for a connection, too
            for end in self._ends:
                self._break(end)
            self._ends.clear()

    def cut_after(self, count: int) -> None:
        """Cut the connection when so many more bytes were sent to the server."""
        self._left = count

    def silence(self) -> None:
        """Accept connections and data, but never answer."""
        self._silent = True

    def mend(self) -> None:
        """Forward again, on the same port. Connections that were open while it was silent stay dead."""
        self._silent = False
        self._left = None
        with self._lock:
            if self._listener.fileno() < 0:
                self._listener = socket.create_server(("127.0.0.1", self.port))
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.calls += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._ends += [near, far]
            dead = threading.Event()
            for source, sink, counted in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._forward, args=(source, sink, counted, dead), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, counted: bool, dead: threading.Event) -> None:
        try:
            while True:
                data = source.recv(1 << 16)
                if self._silent:
                    dead.set()
                if not data:
                    break
                if counted and self._left is not None:
                    self._left -= len(data)
                    if self._left < 0:
                        self.cut()
                        return
                if not dead.is_set():
                    sink.sendall(data)
        except OSError:
            pass
        if not dead.is_set():
            self._break(sink)

    def _break(self, end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
