"""Templates into pages. Every value is escaped, and no script or style but the page's own files is allowed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from controller.base.apart import apart
from controller.base.start_text import start_range
from controller.base.text import capitalized, clock_time, count, duration, gpu_hours, three_digits
from controller.web.page_error import PageError
from controller.web.settings import WebSettings
from policies.serving.runtime.version import VERSION

_UNKNOWN = "\u2013"
HERE = Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGES = (
    ("/", "Overview"),
    ("/queue", "Queue"),
    ("/nodes", "Nodes"),
    ("/idle", "Idle GPUs"),
    ("/waits", "Waits"),
    ("/usage", "Usage"),
    ("/preemptions", "Preemptions"),
    ("/contention", "Contention"),
)


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Control characters, marks that change the direction of what follows, and characters without a width."""


def shown(value: object) -> object:
    """Return the value of a template's expression, with "?" in place of characters with which a name could rearrange the page.

    Markup of a template has none of them: it is made of values that were replaced before.
    """
    return _UNSEEN.sub("?", value) if isinstance(value, str) and not isinstance(value, Markup) else value


_COMMAND = re.compile("`([^`]{1,200})`")


def prose(text: str) -> Markup:
    """Return a sentence as markup: what it has between backticks is a command."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(shown(text)))))  # noqa: S704 - escaped before


def placement(text: str) -> Markup:
    """Return a list of nodes as markup that may break behind each comma, not within a name."""
    return Markup(",<wbr>").join(escape(part) for part in str(shown(text)).split(","))


def moment(time_s: float) -> Markup:
    """Return the local date and time of day as markup that may break between the two, not at a hyphen."""
    day, _, rest = clock_time(time_s).partition(" ")
    return Markup('<span class="whole">{}</span> {}').format(day, rest)


class Renderer:
    """Makes pages. Invariant: text of users and of Slurm never becomes markup."""

    def __init__(self, settings: WebSettings, now: Callable[[], float]) -> None:
        """`now` returns the time, in seconds since the Unix epoch."""
        self.now = now
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=shown,
        )  # fmt: skip
        filters: dict[str, Callable[..., str]] = {
            "duration": lambda seconds: _UNKNOWN if seconds is None else duration(seconds),
            "at": lambda time_s: moment(time_s) if time_s else _UNKNOWN,
            "zone": lambda time_s: time.strftime("%Z", time.localtime(time_s)),
            "prose": prose,
            "placement": placement,
            "percent": lambda share: _UNKNOWN if share is None else f"{share:.0%}",
            "digits": lambda value: _UNKNOWN if value is None else three_digits(value),
            "gpu_hours": gpu_hours,
            "sentence": capitalized,
            "many": count,
            "starts_in": lambda start, now_s: start_range(start.earliest_s, start.latest_s, now_s),
        }
        self._environment.filters.update({name: _or_unknown(name, text_of) for name, text_of in filters.items()})
        self._environment.globals.update(
            base=settings.base_path, version=VERSION, pages=PAGES, refresh_s=settings.refresh_s,
            tokens=settings.token_file is not None,
        )  # fmt: skip

    async def page(self, request: Request, template: str, user: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page. It is made in a thread, so that a long one does not delay others."""
        missing = getattr(request.state, "missing", ())
        html = await asyncio.to_thread(
            self._html, template, user=user, path=request.url.path, missing=missing, **values
        )
        return HTMLResponse(html, status, HEADERS)

    async def error(self, request: Request, error: PageError, user: str) -> HTMLResponse:
        """Return the page of an error."""
        return await self.page(request, "error.html", user, error.status, error=error, refresh_s=0)

    def _html(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**{"now_s": self.now(), "missing": (), **values})


def _or_unknown(name: str, text_of: Callable[..., str]) -> Callable[..., str]:
    """Return the filter; where a value leads to an unexpected error it shows that it is unknown: the rest of the page is shown."""

    def shown_text(*values: Any) -> str:
        with apart("values of web pages", name):
            return text_of(*values)
        return _UNKNOWN

    return shown_text
