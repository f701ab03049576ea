"""headway-policy: list policies, serve one over gRPC, train learned ones, and compare them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from policies.serving.cli import evaluate as cli_evaluate
from policies.serving.cli import promote as cli_promote
from policies.serving.cli import train as cli_train
from policies.serving.cli.options import AsJson
from policies.serving.runtime.version import version_option

if TYPE_CHECKING:
    from policies.api import PolicySpec

# What a command needs is imported in it, so that --help answers at once.
app = typer.Typer(
    name="headway-policy",
    help=__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(cli_train.train)
app.command()(cli_evaluate.evaluate)
app.command(short_help="Replace the weights in service by new, better ones.")(cli_promote.promote)


@app.callback()
def _root(_version: Annotated[bool, version_option("headway-policy")] = False) -> None:
    """List, serve, train and compare policies."""


def main() -> None:
    """Entry point of the program."""
    app()


@app.command("list")
def list_policies(as_json: AsJson = False) -> None:
    """List every installed policy and its source."""
    from policies.api import hidden_policies, installed_policies

    specs, broken = installed_policies()
    hidden = hidden_policies()
    if as_json:
        described = [_as_dict(specs[name]) | {"name": name} for name in specs]
        unused = [dict(zip(("name", "package", "object"), each, strict=True)) for each in hidden]
        typer.echo(json.dumps({"policies": described, "broken": broken, "hidden": unused}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("policy", "preempts", "needs", "source", box=None, header_style="bold")
    for name, spec in specs.items():
        table.add_row(name, "yes" if spec.preempts else "no", ", ".join(sorted(spec.needs)) or "-", spec.source)
    for name, problem in broken.items():
        table.add_row(name, "?", "?", f"[red]{problem}[/red]")
    for name, package, value in hidden:
        table.add_row(name, "-", "-", f"[red]not used: {value} of {package}; Headway has a policy of this name[/red]")
    Console(markup=False, emoji=False).print(table)


@app.command()
def serve(
    policy: Annotated[str, typer.Option(help="NAME, or NAME:key=value,key=value.")],
    listen: Annotated[str, typer.Option(help="unix:///path/to.sock, or HOST:PORT on loopback.")],
    log_format: Annotated[str, typer.Option(help="console or json.")] = "console",
) -> None:
    """Serve a policy over gRPC until SIGTERM or SIGINT."""
    import asyncio

    from policies.serving.runtime.arithmetic import use_one_thread

    use_one_thread()  # numpy and torch read the variables when they are imported, which follows
    from policies.api import load_policy, parse_policy
    from policies.errors import PolicyError
    from policies.serving.server import serve as serve_policy

    _log_to_stderr(log_format)
    try:
        asyncio.run(serve_policy(load_policy(*parse_policy(policy)), listen))
    except PolicyError as error:
        _fail(str(error))


@app.command()
def describe(
    address: Annotated[str, typer.Argument(help="unix:///path/to.sock, or HOST:PORT on loopback.")],
    as_json: AsJson = False,
) -> None:
    """Show what a running policy server serves."""
    import asyncio

    from policies.errors import PolicyError

    try:
        spec, healthy = asyncio.run(_ask(address))
    except PolicyError as error:
        _fail(str(error))
    facts = _as_dict(spec) | {"healthy": healthy}
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    learning = facts.pop("learning", {})
    assert isinstance(learning, dict)
    for name, value in [*facts.items(), *((f"learning.{name}", value) for name, value in learning.items())]:
        typer.echo(f"{name + ':':<12} {', '.join(value) or '-' if isinstance(value, list) else value}")


async def _ask(address: str) -> tuple[PolicySpec, bool]:
    from policies.serving.client import PolicyClient

    async with PolicyClient(address) as client:
        return await client.describe(), await client.healthy()


def _as_dict(spec: PolicySpec) -> dict[str, object]:
    facts = asdict(spec) | {"needs": sorted(spec.needs)}
    if spec.learning is None:
        del facts["learning"]
    return facts


def _log_to_stderr(form: str) -> None:
    from policies.serving.runtime.logs import set_up_logging

    match form:
        case "console" | "json":
            set_up_logging("debug", form)
        case _:
            _fail(f"--log-format is {form!r}; give console or json")


def _fail(problem: str) -> NoReturn:
    typer.echo(f"headway-policy: {problem}", err=True)
    raise typer.Exit(1)
