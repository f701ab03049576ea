"""Options that the commands of headway-policy share."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Traces = Annotated[
    list[str] | None,
    typer.Option(
        help="A trace as headway-sim reads it, what sacct wrote, or FORMAT:FILE for logs that headway-sim trace converts; "
        "several times for several.",
        metavar="FILE",
        show_default="the system's own workloads",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="N nodes of G GPUs, or a TOML file (headway cluster).", metavar="NxG|FILE", show_default="the system's"
    ),
]
Slowdown = Annotated[
    list[str] | None,
    typer.Option(
        help="Why jobs run below their ideal speed, several times; none = not at all.",
        metavar="NAME[:k=v,…]",
        show_default="the system's",
    ),
]
Profiles = Annotated[
    str | None,
    typer.Option(
        help="How models train, as headway profile export measured it.", metavar="FILE", show_default="the papers'"
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="name=value: a field of the recipe, several times; a wrong name tells which there are.",
    ),
]


def fail(command: str, problem: object) -> NoReturn:
    """A user's error as one line, and exit code 1."""
    typer.echo(f"headway-policy {command}: {' '.join(str(problem).split())}", err=True)
    raise typer.Exit(1)
