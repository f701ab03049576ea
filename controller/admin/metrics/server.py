"""HTTP server of the metrics: one thread for each connection, and no more of them than there are places.

The server of prometheus_client has neither a time limit nor a limit on threads: connections that send nothing take threads and
files of the controller for ever.
"""

from __future__ import annotations

import errno
import io
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

log = structlog.get_logger(__name__)

_PLACES = 32
_LONGEST_S = 30.0
"""Longest time of a connection, from its start to the end of the answer. Prometheus waits 10 s."""
_SILENCE_S = 10.0
"""Longest wait for the next bytes of a request, or for a client that does not read."""
_UNREAD_S = 2.0
"""Time after which a client that has not taken its answer makes room for another one, when all places are taken."""
_BACKLOG = 128
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_OUT_OF_FILES_PAUSE_S = 0.5


@dataclass(slots=True)
class _Place:
    began_s: float
    asked: bool = False
    """The request is complete, and is being answered."""
    writing_s: float | None = None
    """Time since which the answer waits for the client; None: no answer waits."""
    cut: bool = False


class Places:
    """The open connections of a server.

    Invariant: at most `most` connections are open, beside as many that were cut and are about to end. When all places are taken,
    the oldest connection without a complete request makes room for a new one, or else the one whose client has not taken its answer
    for the longest time. If there is neither, the new one is refused: requests that are being answered are not interrupted, unless
    they take longer than `longest_s`.
    """

    def __init__(self, most: int, longest_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._longest_s = longest_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        """Held while a connection is cut or leaves, so that nothing is cut under a number that has passed to another file."""
        self._places: dict[socket.socket, _Place] = {}
        """Oldest first. Bound: see the invariant."""

    def enter(self, connection: socket.socket) -> bool:
        """Give the connection a place. Returns False if there is none."""
        with self._lock:
            taken = [(held, place) for held, place in self._places.items() if not place.cut]
            if len(taken) >= self._most:
                idle = next(((held, place) for held, place in taken if not place.asked), None) or self._unread(taken)
                if idle is None or len(self._places) >= 2 * self._most:
                    return False
                _cut(*idle)
            self._places[connection] = _Place(self._monotonic())
            return True

    def has_asked(self, connection: socket.socket) -> None:
        """Note that the request of this connection is complete."""
        with self._lock:
            if connection in self._places:
                self._places[connection].asked = True

    def writes(self, connection: socket.socket, *, begins: bool) -> None:
        """Note that a write to this connection begins or has ended."""
        with self._lock:
            if connection in self._places:
                self._places[connection].writing_s = self._monotonic() if begins else None

    def _unread(self, taken: Iterable[tuple[socket.socket, _Place]]) -> tuple[socket.socket, _Place] | None:
        """Return the connection whose client has not taken its answer for the longest time; None: they all may still read."""
        before_s = self._monotonic() - _UNREAD_S
        waiting = [
            (place.writing_s, held, place)
            for held, place in taken
            if place.writing_s is not None and place.writing_s <= before_s
        ]
        return min(waiting, key=lambda item: item[0])[1:] if waiting else None

    def leave(self, connection: socket.socket) -> None:
        """Free the place, before the connection is closed."""
        with self._lock:
            self._places.pop(connection, None)

    def cut_overdue(self) -> None:
        """Cut connections that last too long."""
        now_s = self._monotonic()
        with self._lock:
            for connection, place in self._places.items():
                if not place.cut and now_s - place.began_s > self._longest_s:
                    _cut(connection, place)

    def cut_all(self) -> None:
        """Cut all connections."""
        with self._lock:
            for connection, place in self._places.items():
                _cut(connection, place)


def _cut(connection: socket.socket, place: _Place) -> None:
    """End the reads and writes of the connection's thread, which then closes it."""
    place.cut = True
    with suppress(OSError):  # the other side has closed it
        connection.shutdown(socket.SHUT_RDWR)


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves the metrics of a registry. Listens from the start on; raises OSError if that fails."""

    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, *, places: int = _PLACES, longest_s: float = _LONGEST_S
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.places = Places(places, longest_s)
        super().__init__((host, port), _Handler)
        self.set_app(make_wsgi_app(registry))

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name, which takes long while a name service is dead."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. While the process has no file left, pause: the loop would spin."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                time.sleep(_OUT_OF_FILES_PAUSE_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - of the base class
        """Return False if there is no place for this connection."""
        return self.places.enter(request)

    def close_request(self, request: Any) -> None:
        """Close a connection: the only place where one is closed."""
        self.places.leave(request)
        super().close_request(request)

    def service_actions(self) -> None:
        """Run twice a second, and after each new connection."""
        self.places.cut_overdue()

    def server_close(self) -> None:
        """Stop listening, and cut all connections."""
        super().server_close()
        self.places.cut_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - of the base class
        """Log an error of a request: a client that is slow or gone is no error of the controller."""
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("metrics_client_gone", client=str(client_address), problem=str(error))
        else:
            log.warning("metrics_request_failed", client=str(client_address), exc_info=error)


class _Writer(io.BufferedIOBase):
    """Writes of an answer, of which the places know when they began."""

    def __init__(self, connection: socket.socket, places: Places) -> None:
        self._connection = connection
        self._places = places

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Send all. Raises BrokenPipeError when the client does not read: wsgiref would print a traceback of a TimeoutError."""
        self._places.writes(self._connection, begins=True)
        try:
            self._connection.sendall(data)
        except TimeoutError as error:
            log.debug("metrics_client_does_not_read", problem=str(error))
            raise BrokenPipeError(f"the client does not read: {error}") from error
        finally:
            self._places.writes(self._connection, begins=False)
        return memoryview(data).nbytes


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_S

    def setup(self) -> None:
        """Write through the places."""
        super().setup()
        self.wfile = _Writer(self.connection, self.server.places)  # type: ignore[attr-defined]  # a MetricsServer

    def parse_request(self) -> bool:
        """Parse the head of the request. From then on the connection keeps its place."""
        complete = super().parse_request()
        if complete:
            self.server.places.has_asked(self.request)  # type: ignore[attr-defined]  # a MetricsServer
        return complete

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
        """Log nothing: scrapes come every few seconds."""
