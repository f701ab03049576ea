"""A web address to which the controller sends something: http or https, without secrets in it. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_PLAIN = re.compile(r"[!-~]{1,2000}")


@dataclass(frozen=True, slots=True)
class WebAddress:
    """The parts of an address."""

    encrypted: bool
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def shown(self) -> str:
        """The address for logs, without path and query: services for chats put secrets there."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.encrypted else 'http'}://{host}:{self.port}"

    @property
    def stays_here(self) -> bool:
        """True for this machine's loopback."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_web_address(text: str) -> WebAddress:
    """Parse an address. Raises ValueError whose text says what is wrong, without the address, which may be secret."""
    if not _PLAIN.fullmatch(text):
        raise ValueError("must be an address of printable ASCII characters without blanks, at most 2000")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("its host or port cannot be read; write https://HOST:PORT/PATH") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must begin with https://HOST or http://HOST")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user or a password; use notify_webhook_token for a secret")
    encrypted = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebAddress(encrypted, parts.hostname, port or (443 if encrypted else 80), target)
