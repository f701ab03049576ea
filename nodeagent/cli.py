"""headway-agent: run the agent of this node, or check what it can measure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policies.serving.runtime.version import version_option

if TYPE_CHECKING:
    from policies.serving.runtime.finding import Finding

app = typer.Typer(
    help="The agent of a compute node: it measures the jobs there and reports to the controller.",
    pretty_exceptions_enable=False,
)

Config = Annotated[Path, typer.Option("--config", "-c", help="Settings file.")]
_DEFAULT_CONFIG = Path("/etc/headway/agent.toml")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    config: Config = _DEFAULT_CONFIG,
    _version: Annotated[bool, version_option("headway-agent")] = False,
) -> None:
    """The agent of a compute node: it measures the jobs there and reports to the controller.

    Without a command it runs.
    """
    if context.invoked_subcommand is None:
        run(config)


@app.command()
def run(config: Config = _DEFAULT_CONFIG) -> None:
    """Run in the foreground until SIGTERM."""
    import asyncio

    from nodeagent.run import run_agent

    _or_exit(lambda: asyncio.run(run_agent(config)))


@app.command()
def check(
    config: Config = _DEFAULT_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the settings and this node: what the agent can measure, what it cannot, and what to do. Run it as root, as the agent.

    The exit status is 1 when something is wrong. The check does not disturb an agent that runs.
    """
    import asyncio

    from nodeagent.check import run_checks
    from nodeagent.config import load_settings
    from policies.serving.runtime.finding import Level
    from policies.serving.runtime.logs import set_up_logging

    def print_findings() -> None:
        settings = load_settings(config)
        set_up_logging("error", "console")
        found = asyncio.run(run_checks(settings))
        typer.echo(_json(found) if as_json else _text(found))
        raise typer.Exit(any(finding.level is Level.ERROR for finding in found))

    _or_exit(print_findings)


def _json(found: list[Finding]) -> str:
    rows = [
        {"check": each.check, "level": each.level.value, "what": each.what, "mend": each.mend or None} for each in found
    ]
    return json.dumps({"findings": rows}, indent=2)


def _text(found: list[Finding]) -> str:
    width = max(len(each.check) for each in found)
    lines = []
    for each in found:
        lines.append(f"{each.level.value:<7}  {each.check:<{width}}  {each.what}")
        if each.mend:
            lines.append(f"{'':<7}  {'':<{width}}  what to do: {each.mend}")
    return "\n".join(lines)


def _or_exit(action: Callable[[], None]) -> None:
    """Run the action. An error that the user can correct becomes one message and exit status 1."""
    from nodeagent.errors import AgentError

    try:
        action()
    except AgentError as error:
        typer.echo(f"headway-agent: {error}", err=True)
        raise typer.Exit(1) from error


def main() -> None:
    """Entry point."""
    app()
