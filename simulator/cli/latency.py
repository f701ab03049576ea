"""headway-sim latency: the time of policies' decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli import options as shared
from simulator.cli.compare import names_in
from simulator.runs.options import RunOptions

if TYPE_CHECKING:
    from simulator.runs.latency import Latency

Decisions = Annotated[
    int | None,
    typer.Option(
        "--decisions", min=1, help="Stop after so many decisions of each policy.", show_default="the whole trace"
    ),
]


@shared.with_run_options
def latency(
    options: RunOptions, policies: shared.Policies, decisions: Decisions = None, as_json: shared.AsJson = False
) -> None:
    """Time every decision of policies on one trace, one policy after the other."""
    from simulator.runs.latency import as_json as json_of
    from simulator.runs.latency import latencies
    from simulator.runs.one import report_notes
    from simulator.runs.progress import Bar

    with Bar("deciding") as bar:
        found = latencies(options, names_in(policies), decisions, bar.on_progress or (lambda _share: None))
    if as_json:
        typer.echo(json.dumps(json_of(found), indent=1))
        report_notes({name: each.note for name, each in found.items()})
    else:
        _print(found)


def _print(found: Mapping[str, Latency]) -> None:
    from rich.table import Table

    from simulator.results.table import plain_console

    table = Table("policy", box=None, header_style="bold")
    for word in (
        "decisions",
        "most waiting jobs",
        "median, ms",
        "p99, ms",
        "CPU median, ms",
        "CPU p99, ms",
        "CPU most, ms",
    ):
        table.add_column(word, justify="right", no_wrap=True)
    for name, each in found.items():
        times = (each.median_ms, each.p99_ms, each.cpu_median_ms, each.cpu_p99_ms, each.cpu_most_ms)
        table.add_row(name, f"{each.decisions:,}", f"{each.most_waiting:,}", *(f"{value:.2f}" for value in times))
    plain_console(160).print(table)
    for name, each in found.items():
        if each.note:
            typer.echo(f"{name}: {each.note}")
    typer.echo(
        f"load average {max(each.load_average for each in found.values()):.1f}; on a busy machine only CPU time is meaningful"
    )
