"""Common part of all commands: connects to the controller, prints the answer, ends with the exit code of a failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import typer

from controller.cli.render.json_output import plain, write_json

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from controller.cli.client import AdminClient

    MessageT = TypeVar("MessageT", bound=Message)


@contextmanager
def connected(
    config: Path | None, socket: Path | None, as_json: bool, *, change: bool = False
) -> Iterator[AdminClient]:
    """Yield a connection to the controller. A failure ends the program with a message and the exit code."""
    from controller.cli.client import AdminClient, CallError, find_socket

    try:
        with AdminClient(find_socket(config, socket, change=change)) as client:
            yield client
    except CallError as error:
        fail(str(error), error.exit_code, as_json, error.reason)
    except BrokenPipeError:
        # The reader has closed the pipe, as in `headway queue | head`.
        _close_output()


def show(found: MessageT, as_json: bool, show_table: Callable[[MessageT], None]) -> None:
    """Print the answer of the controller as one JSON object, or with `show_table`."""
    if as_json:
        write_json(plain(found))
    else:
        show_table(found)


def fail(problem: str, code: int, as_json: bool, reason: str = "") -> NoReturn:
    """End the program with that exit code; the problem goes to standard error, and with --json to the output too.

    `reason` is the controller's word for its refusal (controller/admin/protocol.py); empty: it has given none.
    """
    if as_json:
        write_json({"error": problem, "exit_code": code, **({"reason": reason} if reason else {})})
    typer.echo(f"headway: {problem}", err=True)
    raise typer.Exit(code)


def _close_output() -> None:
    """Discard the rest of the output: its reader is gone, and the interpreter would report that at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
