"""Options that several commands of headway-sim share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from simulator.runs.options import Flag, RunOptions, run_flags

ProfilesFile = Annotated[
    Path | None,
    typer.Option(
        "--profiles", help="A file of profiles of trained models, for the slowdown models.", show_default="the papers'"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command every option of `RunOptions` beside its own; it receives them as one object, its first argument."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    flags = list(run_flags())
    parameters = [*map(_parameter, flags), *own]

    @wraps(command)
    def with_options(**values: Any) -> None:
        given = {flag.name: values.pop(flag.name) for flag in flags}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        # What was not given is None, also where the option's default is another: a list of none.
        command(RunOptions(**{name: value for name, value in given.items() if value not in (None, ())}), **values)

    # Required options first, as Python and the help have them.
    ordered = sorted(parameters, key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    with_options.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    with_options.__annotations__ = {}
    return with_options


def _parameter(flag: Flag) -> inspect.Parameter:
    """Return the parameter from which typer makes the option."""
    default = inspect.Parameter.empty if flag.required else None if flag.several else flag.default
    kind: Any = list[str] if flag.several else flag.kind
    option = typer.Option(
        flag.flag, help=flag.says, metavar=flag.metavar, show_default=True if flag.shown is None else flag.shown
    )
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind | None if default is None else kind, option],
    )
