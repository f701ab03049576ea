"""headway-policy evaluate: comparison of learned policies and heuristics on the same traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from policies.serving.cli import options

if TYPE_CHECKING:
    from policies.learned.evaluation.evaluation import Evaluation, EvaluationRequest
    from policies.learned.evaluation.statistics import Mean

_HOUR_S = 3600.0
_COLUMNS = {
    "avg_jct_s": "average JCT, h",
    "p90_jct_s": "p90 JCT, h",
    "p99_jct_s": "p99 JCT, h",
    "avg_wait_s": "average wait, h",
    "utilization": "GPUs busy, %",
    "avg_contention_sensitivity": "contention sensitivity",
}
_SHARES = ("utilization", "guarded_share")
_IF_ANY = {"carried_avg_s": "jobs of before, h", "guarded_share": "by a guard, %"}
"""Columns that are shown only if a policy has such a figure."""


def evaluate(
    policies: Annotated[
        list[str],
        typer.Argument(
            help="As headway-policy list has them, or agent:system=NAME,weights=FOLDER; changes are against the first.",
            metavar="POLICY…",
        ),
    ],
    weights: options.Weights = None,
    traces: options.Traces = None,
    whole_trace: options.WholeTrace = False,
    windows: options.Windows = False,
    warm_up: options.WarmUp = options.WARM_UP,
    cluster: options.Cluster = None,
    slowdown: options.Slowdown = None,
    profiles: options.Profiles = None,
    system: options.SystemOf = None,
    settings: options.Settings = None,
    seeds: options.TestSeeds = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare policies on the same traces. Prints means with 95 % intervals over seeds, and changes trace by trace.

    A trace is run from a warm cluster to its end: the last fifth of its jobs, which no training uses. JCT includes the time in the
    queue.
    """
    from policies.errors import PolicyError
    from policies.learned.evaluation import evaluation

    request = evaluation.EvaluationRequest(
        policies=tuple(policies),
        overrides=options.overrides(
            traces, cluster, slowdown, profiles, whole=whole_trace, windows=windows, warm_up=warm_up
        ),
        weights=weights,
        system=system,
        settings=tuple(settings or ()),
        seeds=seeds,
    )
    try:
        answer = _evaluation(request)
    except PolicyError as error:
        options.fail("evaluate", error)
    if as_json:
        typer.echo(json.dumps(evaluation.as_json(answer), indent=2))
    else:
        _print(answer)


def _evaluation(request: EvaluationRequest) -> Evaluation:
    import rich.console
    import rich.progress

    from policies.learned.evaluation import evaluation

    console = rich.console.Console(stderr=True)
    # No thread draws the bar, because processes are forked meanwhile.
    with rich.progress.Progress(
        console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("simulating", total=1.0)

        def show(share: float) -> None:
            bar.update(task, completed=share)
            bar.refresh()

        return evaluation.evaluate(request, show)


def _print(answer: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("policy", box=None, header_style="bold", title=answer.data, title_justify="left", title_style="")
    columns = _COLUMNS | {
        metric: title
        for metric, title in _IF_ANY.items()
        if any((mean := figures[metric]) is not None and mean.mean for figures in answer.figures.values())
    }
    for title in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    first = next(iter(answer.figures))
    table.add_column(f"JCT against {first}", justify="right", no_wrap=True)
    for name, figures in answer.figures.items():
        cells = [_text(metric, figures[metric]) for metric in columns]
        table.add_row(name, *cells, "" if name == first else _share(answer.changes[name]))
    # Names of policies and of traces may look like rich's markup.
    console = Console(markup=False, emoji=False)
    (console if console.is_terminal else Console(markup=False, emoji=False, width=200)).print(table)
    for name, left in answer.unfinished.items():
        if left:
            typer.echo(f"{name} left {left:,} jobs unfinished, so its figures are not valid")
    over = "seeds or runs" if answer.seeds == len(answer.traces) else "seeds"
    means = (
        f"means over {len(answer.traces)} traces; ± half of the 95 % interval over {answer.seeds} {over} (Student's t)"
    )
    if answer.says:
        typer.echo(answer.says)
    typer.echo(
        means
        if answer.seeds > 1
        else "one seed or run: an interval needs at least two; --windows makes several of a trace"
    )
    for note in answer.notes:
        typer.echo(note, err=True)


def _text(metric: str, mean: Mean | None) -> str:
    if mean is None:
        return "-"
    unit, digits = (1 / _HOUR_S, 3) if metric.endswith("_s") else (100.0, 1) if metric in _SHARES else (1.0, 3)
    about = "" if mean.ci95 is None else f" ± {unit * mean.ci95:.{digits}f}"
    return f"{unit * mean.mean:,.{digits}f}{about}"


def _share(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{mean.mean:+.1%}" + ("" if mean.ci95 is None else f" ± {mean.ci95:.1%}")
