"""The settings of headway-web: one flat class over one TOML file. Unknown keys are errors."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from controller.base.errors import ConfigurationError
from policies.errors import AddressError
from policies.serving.runtime.address import socket_path
from policies.serving.runtime.settings_file import read_settings

UNIX = "unix"
"""Stands in `proxy_addresses` for all users that may open the Unix socket of `listen`."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address of the page. Invariant: exactly one of `path` and `host` is set."""

    path: Path | None = None
    host: str | None = None
    port: int = 0

    @property
    def local(self) -> bool:
        """True when only this machine can connect."""
        return self.host is None or ipaddress.ip_address(self.host).is_loopback


class WebSettings(BaseModel):
    """Settings of headway-web, read from /etc/headway/web.toml. A change needs a restart."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    listen: str = "127.0.0.1:19342"
    """Address of the page: unix:///path, or host:port. Beyond loopback it needs `proxy_addresses`, and only these are answered."""
    status_socket: Path = Path("/run/headway/status.sock")
    """The controller's status.sock."""
    base_path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """Path under which the proxy shows the page, such as /headway; empty = /. The proxy removes it from requests."""
    proxy_addresses: tuple[str, ...] = ()
    """Addresses or networks of the site's proxy, which signs users in and names them in `user_header`; "unix" = all users that
    may open the Unix socket of `listen`. Loopback is refused: every user of the machine could name any other."""
    user_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] = "X-Remote-User"
    """Header in which the proxy names the user. The proxy has to remove it from what browsers send."""
    user_suffix: str = ""
    """End that is removed from that name, such as @example.org; names without it are refused. Empty = names stay as they are."""
    token_file: Path | None = None
    """File with the users that sign in by a token: a line for each, as `headway-web token USER` prints it. None = no tokens."""
    secure_cookie: bool = True
    """Browsers send the cookie of a token over HTTPS, and to this machine, alone."""
    refresh_s: Annotated[int, Field(ge=5, le=3600)] = 15
    """Interval at which an open page is renewed, seconds."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """Format of the log lines on standard error."""

    @field_validator("proxy_addresses")
    @classmethod
    def _no_loopback(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            if text != UNIX and _network(text).is_loopback:
                raise ValueError(
                    f"{text} is loopback, where every user of the machine could name any other; let the proxy use a Unix socket "
                    '(listen = "unix:///run/headway-web/web.sock", proxy_addresses = ["unix"])'
                )
        return given

    @model_validator(mode="after")
    def _has_a_way_in(self) -> Self:
        address = self.address
        if not self.proxy_addresses and self.token_file is None:
            raise ValueError("nobody could sign in: set proxy_addresses (the site's proxy), or token_file, or both")
        if not address.local and not self.networks:
            raise ValueError(f"listen: {self.listen} is beyond this machine; set proxy_addresses, or give loopback")
        if UNIX in self.proxy_addresses and address.path is None:
            raise ValueError(f'proxy_addresses has "unix", but listen is {self.listen}; give listen = "unix:///path"')
        return self

    @property
    def address(self) -> ListenAddress:
        """The address of the page. Raises ValueError."""
        return _address(self.listen)

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks of the proxy."""
        return tuple(_network(text) for text in self.proxy_addresses if text != UNIX)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f'{error}; give an address, a network such as 192.0.2.0/28, or "{UNIX}"') from None


def _address(text: str) -> ListenAddress:
    if text.startswith("unix:"):
        try:
            return ListenAddress(path=socket_path(text))
        except AddressError as error:
            raise ValueError(str(error)) from None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ipaddress.ip_address(host)
    except ValueError:
        colon = ""
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"listen: {text!r} is no address; give 127.0.0.1:19342, or unix:///run/headway-web/web.sock")
    return ListenAddress(host=host, port=int(port))


def load_settings(path: Path) -> WebSettings:
    """Read and check the file. Raises ConfigurationError that names file, key and mend."""
    return read_settings(
        WebSettings,
        path,
        ConfigurationError,
        none_there="write one (docs/web.md has every key and an example)",
        example='token_file = "/etc/headway/web-tokens"',
    )
