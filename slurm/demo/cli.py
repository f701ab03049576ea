"""`make demo`: the command line of the demonstration."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

_WIDTH_OF_FILES = 140

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output; progress goes to standard error.")
    ] = False,
    policy: Annotated[
        str, typer.Option(help="Policy in the run with Headway; `headway-policy list` shows all.")
    ] = "srtf",
    rate: Annotated[str, typer.Option(help="Bandwidth of each node's NIC.")] = "200mbit",
    short: Annotated[bool, typer.Option("--short", help="Run five short scripts instead of all twelve.")] = False,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="Use the emulated Slurm, even where a real one is possible.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option("--page", help="At the end serve the cluster's web page on loopback, until Enter. Needs root."),
    ] = False,
    name: Annotated[str, typer.Option(hidden=True, help="Name of the mini-cluster; for tests.")] = "headway-demo",
    preload: Annotated[
        Path | None,
        typer.Option(hidden=True, exists=True, dir_okay=False, help="Python file that jobs import first; for tests."),
    ] = None,
) -> None:
    """Run twelve training jobs with Headway, then with Slurm's own backfill, and compare both."""
    # This process forks only to exec, so gRPC needs no support of forks.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    from rich.console import Console

    from slurm.demo.errors import Interrupted
    from slurm.demo.run.interrupts import Interrupts
    from slurm.demo.show import Options, show

    console = Console(stderr=as_json)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=as_json, width=_WIDTH_OF_FILES)
    options = Options(policy=policy, rate=rate, short=short, emulated=emulated, page=page, name=name, preload=preload)
    with Interrupts(report=lambda text: console.print(text, style="dim")) as interrupts:
        try:
            outcome = show(options, console, interrupts)
        except Interrupted as interrupted:
            console.print("Ended early. Everything has been removed.", style="yellow")
            raise typer.Exit(128 + interrupted.number) from None
    if as_json:
        sys.stdout.write(json.dumps(outcome.as_json(), indent=2) + "\n")
    raise typer.Exit(_status(outcome.completed, interrupts.received))


def _status(completed: bool, signal_number: int | None) -> int:
    if signal_number is not None:
        return 128 + signal_number
    return 0 if completed else 1


def main() -> None:
    """Entry point: an error of the user or the machine is one message and exit status 1."""
    from controller.base.errors import HeadwayError
    from controller.cli.client import CallError
    from slurm.demo.errors import DemoError
    from slurm.errors import MiniClusterError

    try:
        app()
    except (DemoError, MiniClusterError, HeadwayError, CallError) as error:
        sys.stderr.write(f"headway demo: {error}\n")
        raise SystemExit(1) from None
    except BrokenPipeError:  # `make demo | head`: the reader has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
