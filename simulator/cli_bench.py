"""headway-sim bench and reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator import cli_options as given


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Only up to 30,000 jobs.")] = False,
    philly: Annotated[
        Path | None,
        typer.Option(help="The full Philly trace; without it one of as many jobs is generated.", show_default=False),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each small case; large ones run twice at most.")] = 5,
    as_json: given.AsJson = False,
) -> None:
    """How fast the simulator is here: whole processes, the curve to a million jobs, and what the time is made of."""
    from simulator.bench import as_json as json_of
    from simulator.bench import bench as measure_all
    from simulator.bench import lines_of

    report = measure_all(quick, philly, repeat, lambda text: typer.echo(text, err=True))
    typer.echo(json_of(report) if as_json else "\n".join(lines_of(report)))
    if report.missed:
        raise typer.Exit(1)


def reproduce(
    system: Annotated[
        str | None, typer.Argument(help="Its name; without one, all are listed.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A folder for what is made.", show_default=False)] = None,
) -> None:
    """Make the results of a published system again."""
    from simulator.reproduce import SYSTEMS, system_of

    if system is not None:
        system_of(system).make(seed, out)
        return
    if not SYSTEMS:
        typer.echo("Nothing can be reproduced yet: systems come with learned policies.", err=True)
        raise typer.Exit(1)
    for name, each in sorted(SYSTEMS.items()):
        typer.echo(f"{name}: {each.says}")
