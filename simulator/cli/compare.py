"""headway-sim compare: several policies on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simulator.cli import options as shared
from simulator.runs.options import RunOptions

Policies = Annotated[
    str | None,
    typer.Option(
        "--policies",
        help="Names with commas between, each with its options: a,b:key=value.",
        metavar="A,B,C",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A folder for report.html, and for the files of each policy.", metavar="DIR", show_default=False
    ),
]


Config = Annotated[
    Path | None,
    typer.Option(
        help="A TOML file of options, with a table `sweep` of options that vary: every combination is run.",
        metavar="FILE",
        show_default=False,
    ),
]


@shared.with_given_options
def compare(
    given: dict[str, Any],
    policies: Policies = None,
    config: Config = None,
    out: Out = None,
    as_json: shared.AsJson = False,
) -> None:
    """Simulate several policies on one trace, in parallel: prints a table; with --out also writes a page.

    With --config, on every combination of the options that the file varies; --out then gets sweep.csv and sweep.json.
    """
    names = None if policies is None else names_in(policies)
    if config is not None:
        _sweep(config, given, names, out, as_json)
        return
    from simulator.errors import SettingError
    from simulator.runs.compare import compare as compare_all

    missing = [f"--{name}" for name in ("trace", "cluster") if name not in given]
    missing += [] if policies is not None else ["--policies"]
    if missing:
        raise SettingError(f"{missing[0]} is missing; give --trace, --cluster and --policies, or --config FILE")
    compare_all(RunOptions(**given), names or [], out, as_json)


def _sweep(config: Path, given: dict[str, Any], names: list[str] | None, out: Path | None, as_json: bool) -> None:
    from simulator.results.files import prepare_folder
    from simulator.runs.one import report_notes
    from simulator.runs.sweep import load_sweep, run_sweep, sweep_csv, sweep_json, sweep_notes, sweep_table, write_sweep

    sweep = load_sweep(config, given, names)
    if out is not None:
        prepare_folder(out)
    runs = run_sweep(sweep)
    if out is not None:
        write_sweep(out, {"sweep.csv": sweep_csv(runs), "sweep.json": sweep_json(runs) + "\n"})
    if as_json:
        typer.echo(sweep_json(runs))
        report_notes(sweep_notes(runs))
        return
    sweep_table(runs)


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
