"""The application: addresses, the user of each request, and errors as pages."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from controller.web.page_error import PageError
from controller.web.rendering import HEADERS, HERE, Renderer
from controller.web.settings import WebSettings
from controller.web.signin import COOKIE, SignIn
from controller.web.source import Source
from controller.web.tokens import user_of
from controller.web.views import Views

log = structlog.get_logger(__name__)

Page = Callable[[Request, str], Awaitable[Response]]
_MOST_QUERY = 2000
"""Longest query of an address, in characters."""
_MOST_FORM = 4096
"""Largest form, in bytes."""
_COOKIE_S = 30 * 86_400


def make_app(settings: WebSettings, tokens: Mapping[str, str], now: Callable[[], float] = time.time) -> Starlette:
    """Return the application. `tokens`: the user of each token's digest. `now` returns the time, seconds since the Unix epoch."""
    return Web(settings, tokens, now).app()


class Web:
    """The application. Invariant: only /healthz, the sign-in form and the files of the page are for requests without a user."""

    def __init__(self, settings: WebSettings, tokens: Mapping[str, str], now: Callable[[], float]) -> None:
        self._settings = settings
        self._sign_in = SignIn(settings, tokens)
        self._renderer = Renderer(settings, now)
        self._views = Views(Source(settings.status_socket), self._renderer, settings.base_path)

    def app(self) -> Starlette:
        """Return the application for a server."""
        views = self._views
        pages: dict[str, Page] = {
            "/": views.overview,
            "/queue": views.queue,
            "/jobs": views.find_job,
            "/jobs/{job_id}": views.job,
            "/nodes": views.nodes,
            "/idle": views.idle,
            "/waits": views.waits,
            "/usage": views.usage,
            "/preemptions": views.preemptions,
            "/contention": views.contention,
        }
        routes = [Route(path, self._page(view), methods=["GET"]) for path, view in pages.items()]
        own = [
            Route("/healthz", lambda _request: PlainTextResponse("ok\n", headers=HEADERS)),
            Route("/sign-in", self._use_token, methods=["POST"]),
            Route("/sign-out", self._forget_token, methods=["POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]
        handlers = {PageError: self._on_error, HTTPException: self._on_http, Exception: self._on_bug}
        return Starlette(routes=[*routes, *own], exception_handlers=handlers)  # type: ignore[arg-type]

    def _page(self, view: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            if len(request.url.query) > _MOST_QUERY:
                raise PageError(414, f"The address is longer than {_MOST_QUERY} characters.", "Shorten its query.")
            request.state.user = self._sign_in.user(request)
            return await view(request, request.state.user)

        return show

    async def _use_token(self, request: Request) -> Response:
        """Keep the token of the form in a cookie, if it is one."""
        if self._settings.token_file is None:
            raise PageError(
                404, "Nobody signs in by a token here.", "Open the page at the address of your site's proxy."
            )
        self._sign_in.check_peer(request)
        token = (await _form(request)).get("token", "").strip()
        user = user_of(self._sign_in.tokens, token)
        if user is None:
            log.warning("token_refused", peer="" if request.client is None else request.client.host)
            raise PageError(
                401, "There is no such token.", "Check that it was copied as a whole; your operator makes new ones."
            )
        response = RedirectResponse(f"{self._settings.base_path}/", 303)
        path = self._settings.base_path or "/"
        response.set_cookie(
            COOKIE,
            token,
            max_age=_COOKIE_S,
            path=path,
            httponly=True,
            samesite="strict",
            secure=self._settings.secure_cookie,
        )
        return response

    async def _forget_token(self, _request: Request) -> Response:
        response = RedirectResponse(f"{self._settings.base_path}/", 303)
        response.delete_cookie(COOKIE, path=self._settings.base_path or "/")
        return response

    async def _on_error(self, request: Request, error: PageError) -> Response:
        return await self._renderer.error(request, error, getattr(request.state, "user", ""))

    async def _on_http(self, request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            page = PageError(405, "This address does not take such a request.", "Follow a link of the page.")
        else:
            page = PageError(
                error.status_code, f"There is no page at {request.url.path[:80]}.", "Begin at the overview."
            )
        return await self._renderer.error(request, page, "")

    async def _on_bug(self, request: Request, error: Exception) -> Response:
        log.error("page_failed", path=request.url.path[:200], exc_info=error)
        page = PageError(
            500, "The page could not be made: this is a bug of headway-web.", "Tell your operator; its log has more."
        )
        return await self._renderer.error(request, page, "")


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a short form. Raises PageError."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_FORM:
            raise PageError(413, f"The form is larger than {_MOST_FORM} bytes.", "Send the token alone.")
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=8)
    except (UnicodeDecodeError, ValueError):
        raise PageError(400, "The form is not understood.", "Sign in on the page.") from None
    return {name: values[0] for name, values in fields.items()}
