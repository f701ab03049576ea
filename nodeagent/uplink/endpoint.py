"""Where agents and the controller meet: an address, and whether it may be used without credentials."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nodeagent.errors import AgentError
from nodeagent.uplink.munge import CredentialCodec, Munge, MungeError, MungeFault

MAX_SOCKET_PATH = 107
"""Bytes that the kernel takes for the path of a Unix socket."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")

MungeMode = Literal["required", "automatic", "off"]


class EndpointError(AgentError):
    """Not an address that agents and the controller can meet at, or not without credentials: the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address. Invariant: exactly one of `path` and `host` is set."""

    path: Path | None = None
    host: str | None = None
    """A host name, or an IP address without brackets."""
    port: int = 0

    def __str__(self) -> str:
        """The form that `parse_endpoint` reads."""
        return self.target if self.path is None else f"unix://{self.path}"

    @property
    def target(self) -> str:
        """The form that gRPC takes."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in str(self.host) else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether nobody beyond this machine can be at the other end: a Unix socket, or a loopback address written as such."""
        if self.path is not None:
            return True
        try:
            return ipaddress.ip_address(str(self.host)).is_loopback
        except ValueError:
            return False  # a name means what somebody else says it does


def parse_endpoint(text: str) -> Endpoint:
    """Read unix:///path or host:port. Raises EndpointError."""
    if text.startswith("unix:"):
        return Endpoint(path=_socket_path(text))
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise EndpointError(f"{text!r} is no address; give HOST:PORT, or unix:///path/to.sock")
    bare = host.removeprefix("[").removesuffix("]")
    if bare == "localhost":
        bare = "127.0.0.1"
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        if not _HOST.fullmatch(bare):
            raise EndpointError(f"{text!r} names no host; give HOST:PORT, or unix:///path/to.sock") from None
    return Endpoint(host=bare, port=int(port))


def open_credential_codec(endpoint: Endpoint, mode: MungeMode, socket: Path | None = None) -> CredentialCodec | None:
    """What makes the credentials for that address; None: it goes without. Both sides follow this rule, so that they agree.

    `automatic` goes without on Unix sockets, and on loopback addresses where MUNGE is not installed. Raises EndpointError and
    MungeError.
    """
    if mode == "off":
        require_local(endpoint)
        return None
    if mode == "automatic" and endpoint.path is not None:
        return None
    try:
        return Munge(socket)
    except MungeError as error:
        if mode == "automatic" and endpoint.local and error.fault is MungeFault.NO_LIBRARY:
            return None
        raise


def require_local(endpoint: Endpoint) -> None:
    """Raises EndpointError where the address may not be used without credentials."""
    if not endpoint.local:
        raise EndpointError(
            f"{endpoint} can be reached from other machines, and there without MUNGE nobody knows who is who; use MUNGE, "
            "a Unix socket, or 127.0.0.1:PORT"
        )


def _socket_path(text: str) -> Path:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = path[2:]
    if not path.startswith("/"):
        raise EndpointError(f"{text!r} is no absolute path; give unix:///path/to.sock")
    if len(path.encode()) > MAX_SOCKET_PATH or "\0" in path:
        raise EndpointError(f"{text!r}: the kernel takes at most {MAX_SOCKET_PATH} bytes for a socket's path")
    return Path(path)
