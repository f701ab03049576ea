"""headway-sim stress: policies on workloads of many shapes, beside a simple rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli import options as shared
from simulator.cli.compare import names_in

if TYPE_CHECKING:
    from simulator.stress.run import Outcome, Stress

Shapes = Annotated[
    str, typer.Option(help="Shapes with commas between; `list` prints them all.", metavar="A,…", show_default="all")
]
Cluster = Annotated[
    str, typer.Option(help="NxG or a TOML file, for the shapes that have no cluster of their own.", metavar="NxG|FILE")
]
Jobs = Annotated[int, typer.Option(min=20, help="Jobs of each workload.", metavar="N")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.", metavar="N")]
Most = Annotated[
    float,
    typer.Option(min=1.0, help="Exit with 1 if an average JCT is above so many times the first policy's.", metavar="X"),
]
Slowdown = Annotated[
    list[str] | None,
    typer.Option(
        help="A model of why jobs run below their ideal speed. May be repeated; `none` is no slowdown.",
        metavar="NAME[:k=v,…]",
        show_default="link-sharing",
    ),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs at once.", metavar="N", show_default="as many as there are cores")
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, for documents.")]


def stress(
    policies: shared.Policies,
    shapes: Shapes = "",
    cluster: Cluster = "4x8",
    jobs: Jobs = 200,
    seed: Seed = 0,
    most: Most = 1.2,
    slowdown: Slowdown = None,
    processes: Processes = None,
    as_json: shared.AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Run policies on workloads of many shapes: idle and overloaded clusters, huge jobs, heavy tails, bursts and others.

    Each average JCT is over that of the first policy, such as fifo-skip; behind it stands the share of decisions that a guard made.
    """
    from simulator.errors import SettingError
    from simulator.runs.progress import Bar
    from simulator.stress import run as running
    from simulator.stress.shapes import SHAPES

    if shapes == "list":
        for name, shape in SHAPES.items():
            typer.echo(f"{name:<16}{shape.says}")
        return
    chosen = tuple(filter(None, (word.strip() for word in shapes.split(",")))) or tuple(SHAPES)
    if unknown := [name for name in chosen if name not in SHAPES]:
        raise SettingError(f"--shapes {unknown[0]!r}: give some of {', '.join(SHAPES)}")
    options = running.StressOptions(
        policies=tuple(names_in(policies)),
        shapes=chosen,
        cluster=cluster,
        jobs=jobs,
        seed=seed,
        slowdown=tuple(slowdown or ("link-sharing",)),
    )
    with Bar("stress") as bar:
        found = running.stress(options, bar.on_progress or (lambda _share: None), processes)
    if as_json:
        typer.echo(json.dumps(running.as_json(found), indent=1))
    elif as_markdown:
        _print_markdown(found)
    else:
        _print(found, most)
    if found.above(most):
        raise typer.Exit(1)


def _rows(found: Stress) -> list[list[str]]:
    options = found.options
    cells = {(each.shape, each.policy): each for each in found.outcomes}
    first, *others = options.policies
    rows = [["shape", f"{first}, h", *others]]
    for shape in options.shapes:
        base = cells[shape, first].avg_jct_s
        texts = [_cell(found, cells[shape, policy]) for policy in others]
        rows.append([shape, "-" if base is None else f"{base / 3600:,.2f}", *texts])
    return rows


def _cell(found: Stress, outcome: Outcome) -> str:
    if outcome.refused:
        return "refuses it"
    if outcome.unfinished:
        return f"{outcome.unfinished} jobs unfinished"
    ratio = found.ratio(outcome)
    inside = outcome.guarded_inside_share
    guard = f" ({outcome.guarded_share:.1%}" + (f"; {inside:.1%}" if inside is not None else "") + ")"
    return ("-" if ratio is None else f"{ratio:.2f}") + (guard if outcome.guarded_share else "")


def _print_markdown(found: Stress) -> None:
    head, *rows = _rows(found)
    for row in (head, ["---"] * len(head), *rows):
        typer.echo(f"| {' | '.join(row)} |")


def _print(found: Stress, most: float) -> None:
    from rich.table import Table

    from simulator.results.table import plain_console

    head, *rows = _rows(found)
    table = Table(*head, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    plain_console(200).print(table)
    typer.echo("In brackets: share of the decisions that a guard made (of those inside the range of the training).")
    for each in found.above(most):
        ratio = found.ratio(each)
        typer.echo(f"{each.policy} on {each.shape}: " + ("jobs unfinished" if ratio is None else f"{ratio:.2f} times"))
