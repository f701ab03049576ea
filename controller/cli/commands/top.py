"""`headway top`: controller and queue on a terminal, always current."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from typing import Annotated

import typer

from controller.cli.commands.call import connected, fail
from controller.cli.commands.options import Config, SocketPath
from controller.cli.commands.status import own_name

_USAGE = 2
_NO_TERMINAL = "top needs a terminal; `headway queue` and `headway status` print once, with --json for programs"
_NO_TEXTUAL = "top needs the package textual: pip install 'headway-scheduler[top]'"

Every = Annotated[float, typer.Option("--every", "-n", min=0.5, max=3600, help="Seconds between two requests.")]
Rows = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of jobs on the screen.")]


def top(every: Every = 2.0, limit: Rows = 500, config: Config = None, socket: SocketPath = None) -> None:
    """Show the state and the queue until `q`; Enter explains a job, `/` searches, `m` shows your own jobs."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(_NO_TERMINAL, _USAGE, as_json=False)
    if importlib.util.find_spec("textual") is None:
        fail(_NO_TEXTUAL, _USAGE, as_json=False)
    from controller.cli.top.app import Top

    with connected(config, socket, as_json=False) as client:
        Top(client, _own_name(), every_s=every, limit=limit).run()


def _own_name() -> str | None:
    with suppress(typer.BadParameter):
        return own_name()
    return None
