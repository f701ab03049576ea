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
Policies = Annotated[
    str, typer.Option(help="Names with commas between, each with its options: a,b:key=value.", metavar="A,B,C")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command every option of `RunOptions` beside its own; it receives them as one object, its first argument."""
    return _with_options(command, lambda given: RunOptions(**given), complete=True)


def with_given_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command every option of `RunOptions`, none of them required; its first argument has those that were given."""
    return _with_options(command, lambda given: given, complete=False)


def _with_options(
    command: Callable[..., None], first: Callable[[dict[str, Any]], object], *, complete: bool
) -> Callable[..., None]:
    """`complete`: required options must be given, and options that are not given have their defaults."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    flags = list(run_flags())
    parameters = [*(_parameter(flag, complete=complete) for flag in flags), *own]

    @wraps(command)
    def with_options(**values: Any) -> None:
        given = {flag.name: values.pop(flag.name) for flag in flags}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        # What was not given is None, also where the option's default is another: a list of none.
        command(first({name: value for name, value in given.items() if value not in (None, ())}), **values)

    # Required options first, as Python and the help have them.
    ordered = sorted(parameters, key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    with_options.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    with_options.__annotations__ = {}
    return with_options


def _parameter(flag: Flag, *, complete: bool) -> inspect.Parameter:
    """Return the parameter from which typer makes the option."""
    default = inspect.Parameter.empty if flag.required else None if flag.several else flag.default
    shown: bool | str = True if flag.shown is None else flag.shown
    if not complete and default is not None:
        shown = str(default) if default and not flag.required else shown
        default = None
    kind: Any = list[str] if flag.several else flag.kind
    option = typer.Option(flag.flag, help=flag.says, metavar=flag.metavar, show_default=shown)
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind | None if default is None else kind, option],
    )
