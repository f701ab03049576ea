"""The version of Headway, and the option --version of its programs.

The version is a constant and not read from the installed package: after an upgrade, a process that was not restarted still reports
its own.
"""

from __future__ import annotations

from typing import Any

VERSION = "0.1.0"
"""The same as in pyproject.toml; a test compares them."""


def version_option(program: str) -> Any:
    """Return the option of typer that prints the version of a program and ends it."""
    import typer

    def show(asked: bool) -> None:
        if asked:
            typer.echo(f"{program} {VERSION}")
            raise typer.Exit

    return typer.Option("--version", callback=show, is_eager=True, help="Print the version and exit.")
