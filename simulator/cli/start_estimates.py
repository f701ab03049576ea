"""headway-sim start-estimates: how good estimates of starts are on a trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli import options as shared
from simulator.cli.run import PolicyText
from simulator.runs.options import RunOptions

if TYPE_CHECKING:
    from simulator.runs.starts.accuracy import Figures

Every = Annotated[int, typer.Option("--every", min=1, help="Estimate at every so many submissions.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Samples of the future for each estimate.")]
HeldBack = Annotated[
    float, typer.Option("--held-back", help="Share of the trace, its end, whose estimates are scored.", metavar="0..1")
]


@shared.with_run_options
def start_estimates(
    options: RunOptions,
    policy: PolicyText,
    every: Every = 50,
    samples: Samples = 20,
    held_back: HeldBack = 0.5,
    as_json: shared.AsJson = False,
) -> None:
    """Estimate the starts of waiting jobs while a trace is simulated, and compare the estimates with the starts."""
    from simulator.runs.progress import Bar
    from simulator.runs.starts.run import StartOptions, start_figures

    with Bar("estimating") as bar:
        own = StartOptions(every=every, samples=samples, held_back=held_back)
        found = start_figures(options, policy, own, bar.on_progress or (lambda _share: None))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1))
    else:
        _print(found)


def _print(found: Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("estimate", box=None, header_style="bold")
    for word in ("pinball loss, s", "in the 80 % range", "earlier", "later", "median width, s", "loss saved"):
        table.add_column(word, justify="right", no_wrap=True)
    rows = {
        "Headway's": found.shown,
        "not corrected by past errors": found.uncorrected,
        "past waits by size": found.by_size,
        "plan by time limits": found.by_limits,
    }
    for name, one in rows.items():
        shares = (f"{share:.1%}" for share in (one.coverage, one.below, one.above))
        saved = f"{found.gain_over(one):.0%}" if one is not found.shown else ""
        table.add_row(name, f"{one.pinball_s:,.0f}", *shares, f"{one.width_s:,.0f}", saved)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)
    typer.echo(
        f"{found.estimates:,} estimates; waits: median {found.wait_p50_s:,.0f} s, mean {found.wait_mean_s:,.0f} s; "
        f"at most {found.most_waiting:,} jobs waited; CPU time of a forecast: mean {found.cpu_mean_s:.2f} s, "
        f"longest {found.cpu_most_s:.2f} s"
    )
    if found.not_started:
        typer.echo(f"{found.not_started:,} more estimates are in no figure: their jobs never started")
