"""The user of a request: named by the site's proxy, or known by a token. Nothing is shown to other users."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from starlette.requests import Request

from controller.base.text import USER_NAME
from controller.web.page_error import PageError
from controller.web.settings import UNIX, WebSettings
from controller.web.tokens import user_of

COOKIE = "headway_token"
"""Cookie with the user's token."""


class SignIn:
    """Finds the user of each request. Invariant: a header names a user only where it comes from an address of the proxy."""

    def __init__(self, settings: WebSettings, tokens: Mapping[str, str]) -> None:
        """`tokens`: the user of each token's digest."""
        self._settings = settings
        self._networks = settings.networks
        self.tokens = tokens

    def user(self, request: Request) -> str:
        """Return the user. Raises PageError: 401 for a request without a user, 403 for an address that is not answered."""
        proxied = self.check_peer(request)
        named = request.headers.getlist(self._settings.user_header) if proxied else []
        if named:
            return self._named(named)
        user = user_of(self.tokens, _token(request))
        if user is not None:
            return user
        if self._settings.token_file is not None:
            raise PageError(401, "You are not signed in.", "Sign in with your token.")
        raise PageError(
            401,
            "You are not signed in: this request names no user.",
            "Open the page at the address of your site's proxy, which signs you in.",
        )

    def check_peer(self, request: Request) -> bool:
        """Return whether the request comes from the proxy. Raises PageError for an address that is not answered."""
        if request.client is None or not request.client.host:
            return UNIX in self._settings.proxy_addresses
        peer = ipaddress.ip_address(request.client.host)
        mapped = getattr(peer, "ipv4_mapped", None)
        peer = peer if mapped is None else mapped
        if any(peer in network for network in self._networks):
            return True
        if not peer.is_loopback:
            raise PageError(
                403, f"Requests from {peer} are not answered.", "Open the page at the address of your site's proxy."
            )
        return False

    def _named(self, named: list[str]) -> str:
        suffix = self._settings.user_suffix
        name = named[0].removesuffix(suffix) if suffix else named[0]
        if len(named) > 1 or not USER_NAME.fullmatch(name) or (suffix and name == named[0]):
            raise PageError(
                403,
                f"The site's proxy names no user that Slurm could know: {', '.join(named)[:80]!r}.",
                f"Ask your operator to check what the proxy sends as {self._settings.user_header}, and user_suffix in web.toml.",
            )
        return name


def _token(request: Request) -> str:
    """Return the token of the request; empty where it has none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")
