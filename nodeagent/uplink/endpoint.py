"""Addresses on which the controller serves agents, and the rule when credentials are needed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nodeagent.errors import AgentError
from nodeagent.uplink.munge import CredentialCodec, Munge, MungeError, MungeFault
from policies.errors import AddressError
from policies.serving.runtime.address import grpc_target, socket_path

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")

MungeMode = Literal["required", "automatic", "off"]


class EndpointError(AgentError):
    """The address is invalid, or may not be used without credentials; the text says what is allowed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address. Invariant: exactly one of `path` and `host` is set."""

    path: Path | None = None
    host: str | None = None
    """A host name, or an IP address without brackets."""
    port: int = 0

    def __str__(self) -> str:
        """Return the form that `parse_endpoint` reads."""
        return self.target if self.path is None else f"unix://{self.path}"

    @property
    def target(self) -> str:
        """The form that gRPC expects."""
        return grpc_target(self.path, self.host, self.port)

    @property
    def local(self) -> bool:
        """True if only this machine can be at the other end: a Unix socket, or a loopback address given as a number."""
        if self.path is not None:
            return True
        try:
            return ipaddress.ip_address(str(self.host)).is_loopback
        except ValueError:
            return False  # what a name stands for depends on the resolver


def parse_endpoint(text: str) -> Endpoint:
    """Read unix:///path or host:port. Raises EndpointError."""
    if text.startswith("unix:"):
        try:
            return Endpoint(path=socket_path(text))
        except AddressError as error:
            raise EndpointError(str(error)) from None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise EndpointError(f"{text!r} is not an address; give HOST:PORT, or unix:///path/to.sock")
    bare = host.removeprefix("[").removesuffix("]")
    if bare == "localhost":
        bare = "127.0.0.1"
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        if not _HOST.fullmatch(bare):
            raise EndpointError(f"{text!r} does not name a host; give HOST:PORT, or unix:///path/to.sock") from None
    return Endpoint(host=bare, port=int(port))


def open_credential_codec(endpoint: Endpoint, mode: MungeMode, socket: Path | None = None) -> CredentialCodec | None:
    """Return the codec of credentials for this address, or None if it needs none. Both sides follow this rule, so that they agree.

    `automatic` uses no credentials on Unix sockets, and on loopback addresses if MUNGE is not installed. Raises EndpointError and
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


def codec_for_all(endpoints: Sequence[Endpoint], mode: MungeMode, socket: Path | None = None) -> CredentialCodec | None:
    """Return the codec for an agent that may call any of these addresses; None if none of them needs credentials.

    Raises EndpointError and MungeError.
    """
    codecs = [open_credential_codec(endpoint, mode, socket) for endpoint in endpoints]
    return next((codec for codec in codecs if codec is not None), None)


def require_local(endpoint: Endpoint) -> None:
    """Raises EndpointError if the address may not be used without credentials."""
    if not endpoint.local:
        raise EndpointError(
            f"{endpoint} can be reached from other machines, and without MUNGE their identity cannot be checked; use MUNGE, "
            "a Unix socket, or 127.0.0.1:PORT"
        )
