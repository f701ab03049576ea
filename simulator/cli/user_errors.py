"""Errors of the user as one line on standard error, with exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec

import typer

P = ParamSpec("P")


def fail(command: str, problem: str) -> NoReturn:
    """Print the problem as one line that begins with the command, and exit with code 2."""
    typer.echo(f"headway-sim {command}: {' '.join(problem.split())}", err=True)
    raise typer.Exit(2)


def with_errors_in_one_line(function: Callable[P, None], command: str | None = None) -> Callable[P, None]:
    """Wrap a command so that it fails as `fail` does for an error of the user; the command has the function's name by default."""

    @wraps(function)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> None:
        from policies.errors import PolicyError
        from simulator.errors import SimulatorError

        try:
            function(*args, **kwargs)
        except (SimulatorError, PolicyError) as error:
            fail(command or function.__name__, str(error))

    return reporting
