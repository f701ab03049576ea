"""headway-sim run: one policy on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli import options as shared
from simulator.runs.options import RunOptions

PolicyText = Annotated[
    str, typer.Option("--policy", help="headway-policy list names them.", metavar="NAME[:key=value,…]")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A folder for jobs.csv, series.csv and summary.json.", metavar="DIR", show_default=False
    ),
]


@shared.with_run_options
def run(options: RunOptions, policy: PolicyText, out: Out = None, as_json: shared.AsJson = False) -> None:
    """Simulate one policy on one trace."""
    from simulator.runs.one import run as run_one

    run_one(options, policy, out, as_json)
