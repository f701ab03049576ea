"""headway-sim compare: several policies on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli import options as shared
from simulator.runs.options import RunOptions

Policies = Annotated[
    str,
    typer.Option(
        "--policies", help="Names with commas between, each with its options: a,b:key=value.", metavar="A,B,C"
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A folder for report.html, and for the files of each policy.", metavar="DIR", show_default=False
    ),
]


@shared.with_run_options
def compare(options: RunOptions, policies: Policies, out: Out = None, as_json: shared.AsJson = False) -> None:
    """Simulate several policies on one trace, in parallel: prints a table; with --out also writes a page."""
    from simulator.runs.compare import compare as compare_all

    compare_all(options, names_in(policies), out, as_json)


def names_in(text: str) -> list[str]:
    """Split `a,b:key=value,c` into policies: a comma begins a new policy unless another key=value of the last one follows."""
    names: list[str] = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        head = item.partition(":")[0]
        if names and "=" in head and ":" in names[-1]:
            names[-1] += f",{item}"
        else:
            names.append(item)
    return names
