"""headway-sim leaderboard: several policies on several traces, clusters, loads and qualities of estimates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli import options as shared
from simulator.cli.compare import names_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.leaderboard.board import Board
    from simulator.leaderboard.grid import Cell

OWN = "own"
Traces = Annotated[
    str,
    typer.Option(
        help="Files with commas between, each as headway-sim reads it, output of sacct, or FORMAT:FILE; FILE@VC takes the jobs "
        "of one virtual cluster.",
        metavar="A,B,C",
    ),
]
Clusters = Annotated[
    str, typer.Option("--clusters", "--cluster", help="NxG or TOML files, with commas between.", metavar="NxG|FILE,…")
]
Loads = Annotated[
    str,
    typer.Option(
        help="Work over capacity, with commas between: times of submission are scaled to it. `own` is the trace's load.",
        metavar="X,…",
    ),
]
EstimatesList = Annotated[
    str, typer.Option(help="true, limit, noisy:SIGMA or history, with commas between.", metavar="A,…")
]
Windows = Annotated[int, typer.Option(min=1, help="Parts of each trace; 1 is the whole trace in one run.", metavar="N")]
WarmUp = Annotated[
    str,
    typer.Option(help="The policy that fills the cluster before a run, with the jobs before.", metavar="POLICY"),
]
Slowdown = Annotated[
    list[str] | None,
    typer.Option(
        help="A model of why jobs run below their ideal speed. May be repeated; `none` is no slowdown.",
        metavar="NAME[:k=v,…]",
        show_default="locality",
    ),
]
PreemptCost = Annotated[
    float | None,
    typer.Option(help="Seconds that every stop costs.", metavar="S", show_default="by the job's model"),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of all random draws.", metavar="N", show_default="0")]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Only the first N jobs of each trace.", metavar="N", show_default="all")
]
Models = Annotated[
    str | None,
    typer.Option(
        help="Draw models for jobs that name none from a mix of contention RL: normal, heavy, medium or low.",
        metavar="MIX",
        show_default="the median of all models",
    ),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs at once.", metavar="N", show_default="as many as there are cores")
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="A folder for leaderboard.html, leaderboard.md and leaderboard.json.", metavar="DIR", show_default=False
    ),
]
Front = Annotated[
    bool,
    typer.Option(
        "--front",
        help="Add the Pareto fronts: the average JCT against p99, makespan and fairness, as a table, and drawn on the page and in "
        "front.svg.",
    ),
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, for documents.")]


def leaderboard(
    traces: Traces,
    clusters: Clusters,
    policies: shared.Policies,
    loads: Loads = OWN,
    estimates: EstimatesList = "true",
    windows: Windows = 1,
    warm_up: WarmUp = "srtf",
    slowdown: Slowdown = None,
    profiles: shared.ProfilesFile = None,
    models: Models = None,
    preempt_cost: PreemptCost = None,
    seed: Seed = None,
    limit: Limit = None,
    processes: Processes = None,
    out: Out = None,
    front: Front = False,
    as_json: shared.AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Compare policies on whole traces, at several loads and estimates: one table and one page. Changes are against the first."""
    from simulator.leaderboard.board import Board
    from simulator.leaderboard.grid import GridOptions, cells_of
    from simulator.leaderboard.perform import perform
    from simulator.results.files import prepare_folder
    from simulator.runs.one import command_line
    from simulator.runs.progress import Bar
    from simulator.runs.scenario import report_unread

    if out is not None:
        prepare_folder(out)
    options = GridOptions(
        traces=_words(traces),
        clusters=_words(clusters),
        policies=tuple(names_in(policies)),
        loads=tuple(_load(word) for word in _words(loads)),
        estimates=_words(estimates),
        windows=windows,
        warm_up=warm_up,
        slowdown=tuple(slowdown or ("locality",)),
        profiles=profiles,
        models=models,
        preempt_cost_s=preempt_cost,
        seed=seed,
        limit=limit,
    )
    cells = cells_of(options)
    for cell in {cell.cluster: cell for cell in cells}.values():
        report_unread(options.slowdown, cell.cluster, cell.scenario.cluster)
    if not (as_json or as_markdown):
        _print_loads(cells)
    with Bar("leaderboard") as bar:
        runs = perform(options, cells, bar.on_progress or (lambda _share: None), processes)
    board = Board(options, cells, runs, command_line(), has_front=front)
    if out is not None:
        _write(board, out)
    if as_json:
        typer.echo(board.as_json())
    elif as_markdown:
        typer.echo(board.markdown())
    else:
        _print(board, out)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _load(word: str) -> float | None:
    from simulator.errors import SettingError

    if word == OWN:
        return None
    try:
        return float(word)
    except ValueError:
        raise SettingError(f"--loads {word!r}: give numbers, such as .7,.9,1.1, or {OWN}") from None


def _print_loads(cells: Sequence[Cell]) -> None:
    """Print the load of each trace on each cluster, once for all estimates."""
    for line in dict.fromkeys(f"{cell.trace} on {cell.cluster}: {cell.offered.text()}" for cell in cells):
        typer.echo(line, err=True)


def _write(board: Board, out: Path) -> None:
    from simulator.errors import SettingError
    from simulator.leaderboard.front_picture import front_picture
    from simulator.leaderboard.page import write_page

    write_page(out / "leaderboard.html", board)
    texts = {"leaderboard.md": board.markdown(), "leaderboard.json": board.as_json() + "\n"}
    if board.has_front:
        texts["front.svg"] = front_picture(board.standings.table(), ground="white") + "\n"
    for name, text in texts.items():
        try:
            (out / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingError(f"{out / name}: cannot be written ({error.strerror}); give another --out") from error


def _print(board: Board, out: Path | None) -> None:
    from rich.table import Table

    from simulator.leaderboard.standings import METHOD
    from simulator.leaderboard.tables import not_significant
    from simulator.results.table import plain_console, title_of

    console = plain_console(220)
    for text in board.tables():
        if text.title in ("Runs", "Loads"):
            continue
        table = Table(title=title_of(text.title, f" {text.note}"), title_justify="left", box=None, title_style="")
        for place, word in enumerate(text.head):
            table.add_column(word, justify="left" if place < text.names else "right")
        for row in text.rows:
            table.add_row(*row)
        console.print(table, "")
    for line in (*board.notes(), "Not significant:", *(f"  {line}" for line in not_significant(board.standings))):
        typer.echo(line)
    typer.echo(f"{board.says()}.\n{METHOD}")
    if out is not None:
        typer.echo(f"\n{out / 'leaderboard.html'}")
