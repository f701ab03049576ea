"""headway-minicluster fidelity: the simulator compared with real jobs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slurm.cli.options import Json, policies_in, report, require_slurm, require_writable, write_json

Policies = Annotated[
    str, typer.Option(help="Policies that do not preempt, with commas between: a replay for each.", metavar="A,B,C")
]
Slowdown = Annotated[str, typer.Option(help="The simulator's model, as for headway-sim.")]
MeasuredFile = Annotated[
    Path | None,
    typer.Option("--measured", help="Predict from the measurements in this file; no jobs are run.", show_default=False),
]
Out = Annotated[Path | None, typer.Option(help="A file for the measurements, for --measured.", show_default=False)]
Picture = Annotated[
    Path | None,
    typer.Option(help="An SVG file: predicted against measured, a point for each job.", show_default=False),
]


def fidelity(
    jobs: Annotated[int, typer.Option(min=1, help="Jobs of the trace.")] = 24,
    policies: Policies = "fifo,sjf,fewest-gpus",
    rate: Annotated[str, typer.Option(help="Bandwidth of each NIC in both directions.")] = "100mbit",
    seed: Annotated[int, typer.Option(help="Seed of the trace.")] = 3,
    slowdown: Slowdown = "max-min:reference=alone,sharing=duty",
    measured: MeasuredFile = None,
    out: Out = None,
    picture: Picture = None,
    as_json: Json = False,
) -> None:
    """Run real DDP jobs on a mini-cluster and in the simulator, and compare. The exit status is 1 if a goal is missed."""
    from slurm.experiments.fidelity import experiment
    from slurm.experiments.fidelity.accuracy import met
    from slurm.experiments.fidelity.report import as_json as json_of
    from slurm.experiments.fidelity.report import draw

    require_writable(out, picture)
    if measured is not None:
        found = experiment.read(measured)
    else:
        names = policies_in(policies)
        require_slurm()
        found = experiment.run(jobs, names, rate, seed, report)
        if out is not None:
            write_json(out, asdict(found))
    fit, errors = experiment.evaluate(found, slowdown)
    if picture is not None:
        draw(errors, picture)
    if as_json:
        typer.echo(json.dumps({"machine": found.machine, "rate": found.rate, **json_of(errors)}, indent=1))
    else:
        from rich.console import Console

        from slurm.experiments.fidelity.report import tables

        Console(width=150).print(tables(fit, found.isolated, errors))
    if not met(errors):
        raise typer.Exit(1)
