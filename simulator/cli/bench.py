"""headway-sim bench and reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli import options as shared
from simulator.reproducing.registry import FIRST_TEST_SEED, default_seeds


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Only up to 30,000 jobs.")] = False,
    philly: Annotated[
        Path | None,
        typer.Option(
            help="The full Philly trace. Without it, a trace of as many jobs is generated.", show_default=False
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each small case; large ones run twice at most.")] = 5,
    as_json: shared.AsJson = False,
) -> None:
    """Measure the simulator's speed here: whole processes, up to a million jobs, and the phases of a run."""
    from simulator.runs.bench import as_json as json_of
    from simulator.runs.bench import bench as measure_all
    from simulator.runs.bench import lines_of

    report = measure_all(quick, philly, repeat, lambda text: typer.echo(text, err=True))
    typer.echo(json_of(report) if as_json else "\n".join(lines_of(report)))
    if report.missed:
        raise typer.Exit(1)


def reproduce(
    system: Annotated[
        str | None, typer.Argument(help="Name of the system. Without it, all names are listed.", show_default=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The main settings with few seeds, or stored runs, in minutes.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Test traces of each setting.",
            show_default=default_seeds(),
        ),
    ] = None,
    first_seed: Annotated[
        int,
        typer.Option(
            min=0,
            help=f"Seed of the first trace. Seeds below {FIRST_TEST_SEED} are those of training and validation.",
        ),
    ] = FIRST_TEST_SEED,
    only: Annotated[
        str,
        typer.Option(
            help="Only the setting of that name, or else those whose names contain this.",
            metavar="WORDS",
            show_default="all",
        ),
    ] = "",
    profiles: shared.ProfilesFile = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for a page, and for the JSON beside it.", metavar="DIR", show_default=False),
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Reproduce the results of a system: its claims, the results here, and controls."""
    from simulator.reproducing import registry

    if system is None:
        systems = {name: each.says for name, each in sorted(registry.REPRODUCTIONS.items())}
        typer.echo(json.dumps(systems, indent=1) if as_json else "\n".join(map(": ".join, systems.items())))
        return
    from simulator.reproducing import report
    from simulator.runs.one import command_line
    from simulator.runs.progress import Bar

    chosen = registry.reproduction_of(system)
    with Bar(f"reproducing {system}") as bar:
        results = registry.reproduce(
            chosen,
            quick=quick,
            seeds=seeds,
            profiles=profiles,
            on_progress=bar.on_progress or (lambda _share: None),
            only=only,
            first_seed=first_seed,
        )
    if out is not None:
        page = registry.write(out, chosen, results, command_line())
    if as_json:
        typer.echo(report.as_json(results))
        return
    report.print_results(results)
    if out is not None:
        typer.echo(page)
