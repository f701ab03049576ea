"""headway-policy evaluate: learned policies and heuristics beside each other, on the same traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from policies.serving.cli import options as given

if TYPE_CHECKING:
    from policies.learned.evaluation.evaluation import Answer
    from policies.learned.evaluation.statistics import Mean

_HOUR_S = 3600.0
_COLUMNS = {
    "avg_jct_s": "average JCT, h",
    "p90_jct_s": "p90 JCT, h",
    "avg_wait_s": "average wait, h",
    "utilization": "GPUs busy, %",
    "avg_contention_sensitivity": "contention sensitivity",
}


def evaluate(
    policies: Annotated[
        list[str],
        typer.Argument(help="As headway-policy list has them; changes are against the first.", metavar="POLICY…"),
    ],
    weights: Annotated[
        str | None,
        typer.Option(
            help="What headway-policy train made, for those that have weights.",
            metavar="FOLDER",
            show_default="shipped",
        ),
    ] = None,
    traces: given.Traces = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="All of the traces, not only the last fifth that no training sees: for traces that none saw.",
        ),
    ] = False,
    cluster: given.Cluster = None,
    slowdown: given.Slowdown = None,
    profiles: given.Profiles = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="Whose workloads and cluster to take.", metavar="SYSTEM", show_default="the learned policy's"
        ),
    ] = None,
    settings: given.Settings = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Test seeds of workloads; windows of traces.", show_default="5; all windows"
        ),
    ] = None,
    as_json: given.AsJson = False,
) -> None:
    """Policies on the same traces: means with 95 % intervals over seeds, and changes trace by trace. JCT counts queueing."""
    from policies.errors import PolicyError
    from policies.learned.evaluation import evaluation
    from policies.learned.training.systems import Given

    question = evaluation.Question(
        policies=tuple(policies),
        given=Given(
            traces=tuple(traces or ()),
            cluster=cluster,
            slowdown=tuple(slowdown) if slowdown else None,
            profiles=profiles,
            whole=whole,
        ),
        weights=weights,
        system=system,
        settings=tuple(settings or ()),
        seeds=seeds,
    )
    try:
        answer = _answer(question)
    except PolicyError as error:
        given.fail("evaluate", error)
    if as_json:
        typer.echo(json.dumps(evaluation.as_json(answer), indent=2))
    else:
        _print(answer)


def _answer(question: object) -> Answer:
    import rich.console
    import rich.progress

    from policies.learned.evaluation import evaluation

    assert isinstance(question, evaluation.Question)
    console = rich.console.Console(stderr=True)
    # No thread draws it: processes are forked beside it.
    with rich.progress.Progress(
        console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("simulating", total=1.0)

        def tell(share: float) -> None:
            bar.update(task, completed=share)
            bar.refresh()

        return evaluation.evaluate(question, tell)


def _print(answer: Answer) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("policy", box=None, header_style="bold", title=answer.data, title_justify="left", title_style="")
    for title in _COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    first = next(iter(answer.figures))
    table.add_column(f"JCT against {first}", justify="right", no_wrap=True)
    for name, figures in answer.figures.items():
        cells = [_text(metric, figures[metric]) for metric in _COLUMNS]
        table.add_row(name, *cells, "" if name == first else _share(answer.changes[name]))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
    for name, left in answer.unfinished.items():
        if left:
            typer.echo(f"{name} left {left:,} jobs waiting for ever, so its figures say nothing")
    over = "seeds or windows" if answer.seeds == len(answer.traces) else "seeds"
    means = (
        f"means over {len(answer.traces)} traces; ± half of the 95 % interval over {answer.seeds} {over} (Student's t)"
    )
    typer.echo(means if answer.seeds > 1 else "one seed or window: no interval can be told")
    for note in answer.notes:
        typer.echo(note, err=True)


def _text(metric: str, mean: Mean | None) -> str:
    if mean is None:
        return "-"
    unit, digits = (1 / _HOUR_S, 3) if metric.endswith("_s") else (100.0, 1) if metric == "utilization" else (1.0, 3)
    about = "" if mean.ci95 is None else f" ± {unit * mean.ci95:.{digits}f}"
    return f"{unit * mean.mean:,.{digits}f}{about}"


def _share(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    return f"{mean.mean:+.1%}" + ("" if mean.ci95 is None else f" ± {mean.ci95:.1%}")
