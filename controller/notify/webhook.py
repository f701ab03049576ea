"""POST of a notification to a web address, within a time limit that holds whatever the server does."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
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
        connection = self._connection()
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

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if not self.address.encrypted:
            return http.client.HTTPConnection(host, port, timeout=self.limit_s)
        return http.client.HTTPSConnection(host, port, timeout=self.limit_s, context=ssl.create_default_context())

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "headway"}
        return headers | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
