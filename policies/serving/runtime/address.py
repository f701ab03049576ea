"""Addresses of policy servers: Unix sockets and loopback, nothing else.

The service carries no credentials, so it is not offered to other machines.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from policies.errors import AddressError

MAX_SOCKET_PATH = 107
"""Bytes that the kernel allows for the path of a Unix socket."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server. Invariant: exactly one of `path` and `host` is set."""

    path: Path | None = None
    host: str | None = None
    port: int = 0
    """Port of loopback; 0 stands for any free port, and only a server may use it."""

    def __str__(self) -> str:
        """The form that `parse_address` reads."""
        if self.path is not None:
            return f"unix://{self.path}"
        return self.target

    @property
    def target(self) -> str:
        """The form that gRPC takes."""
        return grpc_target(self.path, self.host, self.port)


def parse_address(text: str) -> Address:
    """Read unix:///path, or host:port on loopback. Raises AddressError."""
    if text.startswith("unix:"):
        return Address(path=socket_path(text))
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise AddressError(f"{text!r} is not an address; give unix:///path/to.sock or 127.0.0.1:PORT")
    host = host.removeprefix("[").removesuffix("]")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise AddressError(
            f"{text!r} is not on this machine; policies are served without credentials, so only on Unix sockets "
            "(unix:///path/to.sock) and loopback (127.0.0.1:PORT)"
        )
    return Address(host=host, port=int(port))


def grpc_target(path: Path | None, host: str | None, port: int) -> str:
    """Return the address of a Unix socket, or of a host and port, in the form that gRPC takes."""
    if path is not None:
        return f"unix:{path}"
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def socket_path(text: str) -> Path:
    """Return the path of unix:///path or unix:/path. Raises AddressError."""
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = path[2:]
    if not path.startswith("/"):
        raise AddressError(f"{text!r} is not an absolute path; give unix:///path/to.sock")
    if len(path.encode()) > MAX_SOCKET_PATH or "\0" in path:
        raise AddressError(f"{text!r}: the kernel allows at most {MAX_SOCKET_PATH} bytes for a socket's path")
    return Path(path)
