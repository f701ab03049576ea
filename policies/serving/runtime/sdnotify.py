"""Notifications to systemd about a service (sd_notify), without libsystemd.

Outside systemd, where NOTIFY_SOCKET is not set, every call does nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Sends states to the service manager. Never raises: a service must not fail because no manager listens."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of that environment (default: this process's)."""
        environ = os.environ if environ is None else environ
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        self.watchdog_s = _watchdog_s(environ)
        """systemd ends the service without a signal for so long; None: no watchdog. Call `watchdog` twice as often."""

    def ready(self, status: str = "") -> None:
        """Report that the service has started (or finished reloading) and serves."""
        self._send("READY=1", status)

    def reloading(self, status: str = "") -> None:
        """Report that the service reads its configuration again; `ready` follows."""
        self._send("RELOADING=1", status, f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> None:
        """Report that the service ends."""
        self._send("STOPPING=1", status)

    def watchdog(self) -> None:
        """Report that the service is alive."""
        self._send("WATCHDOG=1", "")

    def status(self, text: str) -> None:
        """Set the line in `systemctl status`."""
        self._send("", text)

    def _send(self, state: str, status: str, *more: str) -> None:
        if not self._path:
            return
        lines = [line for line in (state, f"STATUS={status}" if status else "", *more) if line]
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto("\n".join(lines).encode(errors="backslashreplace"), self._path)


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    period, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not period.isdecimal() or int(period) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(period) / 1e6
