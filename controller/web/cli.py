"""headway-web: serves the page, checks its settings, and makes tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from policies.serving.runtime.version import version_option

app = typer.Typer(
    help="Show queue, jobs and nodes of the Headway controller of this machine as a web page. It changes nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Config = Annotated[Path, typer.Option("--config", "-c", help="Settings file.")]
_DEFAULT_CONFIG = Path("/etc/headway/web.toml")
_INSTALL = "headway-web: {missing} is not installed; install the page: pip install -c constraints.txt '.[web]' ./headway_client"


@app.callback()
def _root(_version: Annotated[bool, version_option("headway-web")] = False) -> None:
    """Serve the page."""


@app.command()
def run(config: Config = _DEFAULT_CONFIG) -> None:
    """Serve the page in the foreground until SIGTERM."""
    _need_packages()
    import asyncio

    from controller.web.run import run_web

    _or_exit(lambda: asyncio.run(run_web(config)))


@app.command("check-config")
def check_config(config: Config = _DEFAULT_CONFIG) -> None:
    """Read the settings file and the tokens, and report each mistake."""
    _need_packages()
    from controller.web.run import checked

    def check() -> None:
        checked(config)
        typer.echo(f"{config}: in order")

    _or_exit(check)


@app.command()
def token(user: Annotated[str, typer.Argument(help="User, as Slurm names it.")]) -> None:
    """Make a token for a user: print it, and the line for the file of tokens."""
    from controller.web.tokens import new_token

    def make() -> None:
        made, line = new_token(user)
        typer.echo(f"token of {user}, for the user alone: {made}")
        typer.echo(f"line for token_file: {line}")

    _or_exit(make)


def _need_packages() -> None:
    """Exit with a message when a package of the page is missing."""
    from importlib.util import find_spec

    specs = {name: find_spec(name) for name in ("headway_client", "jinja2", "pydantic", "starlette", "uvicorn")}
    # A folder of that name in the present folder is found as well, without an origin.
    missing = [name for name, spec in specs.items() if spec is None or spec.origin is None]
    if missing:
        typer.echo(_INSTALL.format(missing=", ".join(missing)), err=True)
        raise typer.Exit(1)


def _or_exit(action: object) -> None:
    """Run the action; an error that a user can correct is printed as one message, with exit status 1."""
    from controller.base.errors import HeadwayError

    assert callable(action)
    try:
        action()
    except HeadwayError as error:
        typer.echo(f"headway-web: {error}", err=True)
        raise typer.Exit(1) from error


def main() -> None:
    """Entry point."""
    app()
