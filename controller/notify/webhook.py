"""POST of a notification to a web address, within a time limit that holds whatever the server does."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from controller.base.web_address import WebAddress
from controller.notify.message import Notification
from controller.notify.outbox import DeliveryError

_ACCEPTED = range(200, 300)


@dataclass(frozen=True)
class Webhook:
    """One address. Redirects are not followed, so that a token goes nowhere else, and answers are not read."""

    address: WebAddress
    limit_s: float
    token: str = field(default="", repr=False)
    """Sent as a bearer token; empty for none."""

    def __call__(self, notification: Notification) -> None:
        """Send it. Raises DeliveryError."""
        end_s = time.monotonic() + self.limit_s
        context = ssl.create_default_context() if self.address.encrypted else None  # it reads files, so only once
        connection = self._connection(context)
        cut = threading.Event()

        def end() -> None:
            cut.set()
            if (found := connection.sock) is not None:
                with suppress(OSError):
                    # Not SSLSocket's own, which must not be called while another thread reads
                    socket.socket.shutdown(found, socket.SHUT_RDWR)

        timer = threading.Timer(self.limit_s, end)
        timer.daemon = True
        timer.start()
        try:
            connection.sock = self._connected(context, end_s)
            if cut.is_set() or time.monotonic() >= end_s:  # nothing may arrive that counts as failed
                raise TimeoutError
            if isinstance(connection.sock, ssl.SSLSocket):
                connection.sock.do_handshake()
            connection.request("POST", self.address.target, notification.body(), self._headers())
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = cut.is_set() or isinstance(error, TimeoutError)
            raise self._failure("" if late else str(error) or type(error).__name__) from error
        finally:
            timer.cancel()
            connection.close()
        if cut.is_set():  # half an answer may look like one
            raise self._failure("")
        if status not in _ACCEPTED:
            raise self._failure(f"the server answered with status {status}")

    def _failure(self, problem: str) -> DeliveryError:
        return DeliveryError(f"{self.address.shown}: {problem or f'no answer in {self.limit_s:g} s'}")

    def _connection(self, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
        """Return a connection that has no socket yet."""
        if context is None:
            return http.client.HTTPConnection(self.address.host, self.address.port)
        return http.client.HTTPSConnection(self.address.host, self.address.port, context=context)

    def _connected(self, context: ssl.SSLContext | None, end_s: float) -> socket.socket:
        """Return a connected socket, for TLS before the handshake, so that it can be cut off during that. Raises OSError."""
        sock = connect(self.address.host, self.address.port, end_s)
        sock.settimeout(self.limit_s)
        if context is None:
            return sock
        return context.wrap_socket(sock, server_hostname=self.address.host, do_handshake_on_connect=False)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "headway"}
        return headers | ({"Authorization": f"Bearer {self.token}"} if self.token else {})


def connect(host: str, port: int, end_s: float) -> socket.socket:
    """Connect to the first address of the host that answers, until `end_s` of the monotonic clock. Raises OSError.

    The time that is left is divided among the addresses that are left, so that one that does not answer leaves time for the next.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem = OSError("the host has no address")
    for number, (family, kind, protocol, _, address) in enumerate(found):
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # no such protocol here
            problem = error
            continue
        try:
            sock.settimeout(left_s / (len(found) - number))
            sock.connect(address)
        except OSError as error:
            sock.close()
            problem = error
        else:
            return sock
    raise problem
