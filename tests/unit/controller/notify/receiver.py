"""A real HTTP server on loopback that keeps what it is sent, and answers as a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """Bodies and tokens that have arrived, and how the server answers."""

    url: str = ""
    status: int = 204
    location: str = ""
    hang: threading.Event | None = None
    """The server waits for it before it answers, sending a byte of a header now and then."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)


@contextmanager
def receiving(**fields: Any) -> Iterator[Receiver]:
    """Serve until the context ends."""
    receiver = Receiver(**fields)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            receiver.tokens.append(self.headers["Authorization"])
            if receiver.hang is not None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not receiver.hang.wait(0.05):
                    try:
                        self.wfile.write(b"x")
                    except OSError:
                        return
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in the base class)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?channel=jobs"
    try:
        yield receiver
    finally:
        if receiver.hang is not None:
            receiver.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()


def until(condition: Any, what: str, timeout_s: float = 30.0) -> None:
    """Wait until `condition()` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s:g} s"
        time.sleep(0.01)
