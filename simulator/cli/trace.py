"""headway-sim trace: convert logs, generate workloads of the papers, describe traces."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.user_errors import fail, with_errors_in_one_line

if TYPE_CHECKING:
    from simulator.traces.describe import Statistics
    from simulator.traces.trace import Trace

# What a command needs is imported in it, so that --help answers at once.
app = typer.Typer(name="trace", help=__doc__, no_args_is_help=True)

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="File to write: .csv, .csv.gz, .csv.zst or .parquet. Without it, CSV goes to standard output.",
    ),
]


_COMMAND = "trace"
_with_errors_in_one_line = partial(with_errors_in_one_line, command=_COMMAND)


@app.command()
@_with_errors_in_one_line
def convert(
    form: Annotated[
        str,
        typer.Option(
            "--from", help="philly, helios, acme, pai, openb, itp, gavel, pollux, tiresias, swf, sacct or fractional."
        ),
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of the log. Without files, --from sacct runs sacct.")
    ] = None,
    out: Out = None,
    speeds: Annotated[Path | None, typer.Option(help="gavel: the file of measured steps per second.")] = None,
    gpu: Annotated[str, typer.Option(help="gavel: the GPU type whose speeds are used.")] = "v100",
    since: Annotated[
        str, typer.Option(help="sacct: beginning of the period, in a form that sacct accepts.")
    ] = "now-90days",
    gpu_shares: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="pai, openb, fractional: count in shares of a GPU, for a cluster with so many times its GPUs; 1 rounds parts up.",
            metavar="K",
        ),
    ] = 1,
) -> None:
    """Convert a cluster's log to a trace. Dropped rows are counted on standard error."""
    from simulator.traces.formats import FORMATS, IN_SHARES, Options, load_log

    if form not in FORMATS:
        fail(_COMMAND, f"--from {form!r} is not known; give one of {', '.join(FORMATS)}")
    if not files and form != "sacct":
        fail(_COMMAND, f"--from {form} needs a file; give the log's FILE")
    if gpu_shares > 1 and form not in IN_SHARES:
        fail(_COMMAND, f"--gpu-shares: jobs of {form} request whole GPUs; it is for {', '.join(IN_SHARES)}")
    loaded = load_log(form, files or [], Options(speeds=speeds, gpu=gpu, since=since, gpu_shares=gpu_shares))
    for why, count in loaded.skipped.items():
        typer.echo(f"left out: {count:,} {why}", err=True)
    _write(loaded.trace, out)


@app.command()
@_with_errors_in_one_line
def generate(
    like: Annotated[str, typer.Option(help="contention-rl, sched2, dl2, rl-taps, marl or philly.")],
    jobs: Annotated[int | None, typer.Option(help="Number of jobs. Default: the number of the paper.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same trace.")] = 0,
    cluster: Annotated[str | None, typer.Option(help="NxG: the cluster to which --load refers.")] = None,
    load: Annotated[
        float | None,
        typer.Option(
            help="Work of the jobs over the cluster's capacity from the first to the last submission, exactly."
        ),
    ] = None,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Begin as busy as the load says: what jobs would run after the end runs from the beginning, as jobs of their own.",
        ),
    ] = False,
    arrivals: Annotated[str | None, typer.Option(help="batch, even, uniform, poisson, bursty or daily.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE: another parameter of the generator; give lists with slashes."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the parameters and their meaning; generate no trace.")
    ] = False,
    out: Out = None,
) -> None:
    """Generate a workload of a paper, drawn from its distributions."""
    from simulator.traces.generators import from_text
    from simulator.traces.generators import generate as draw

    texts = dict(_setting(text) for text in settings or [])
    given = {"jobs": jobs, "load": load, "arrivals": arrivals, "cluster_gpus": cluster and _total_gpus(cluster)}
    texts |= {name: str(value) for name, value in given.items() if value is not None} | {"seed": str(seed)}
    workload = from_text(like, texts)
    if show:
        for name, value in asdict(workload).items():
            shown = "/".join(map(str, value)) if isinstance(value, tuple) else value
            typer.echo(f"{name}={'' if shown is None else shown}")
        return
    trace = draw(like, workload)
    if load is not None:
        from simulator.traces.generators import with_exact_load

        trace = with_exact_load(workload, trace)
    if warm:
        from simulator.traces.load import wrapped

        trace = wrapped(trace)
    if load is not None:
        _say_load(trace, workload.cluster_gpus, load)
    _write(trace, out)


@app.command(short_help="Describe a trace: jobs, sizes, durations, rates.")
@_with_errors_in_one_line
def describe(
    file: Annotated[Path, typer.Argument(help="A trace: .csv, .csv.gz, .csv.zst or .parquet.")],
    cluster: Annotated[
        str | None, typer.Option(help="N nodes of G GPUs, as NxG: also print the trace's load on that cluster.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Read only the first N rows.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also write a picture to this .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Describe a trace: jobs, sizes, durations, submissions by hour, users, load."""
    from simulator.traces.describe import describe as statistics_of
    from simulator.traces.read import read_trace

    total_gpus = _total_gpus(cluster) if cluster else None
    trace = read_trace(file, limit)
    statistics = statistics_of(trace, total_gpus)
    if as_json:
        import json

        typer.echo(json.dumps(asdict(statistics), indent=2))
    else:
        _print(statistics)
    if plot:
        from simulator.traces.plot import plot as draw

        draw(trace, plot, total_gpus)


def _say_load(trace: Trace, cluster_gpus: int, load: float) -> None:
    """Check that the trace has that load, and print it on standard error."""
    from simulator.traces.load import check_load

    found = check_load(trace, cluster_gpus, load)
    for line in filter(None, (found.text(), found.warning())):
        typer.echo(line, err=True)


def _write(trace: Trace, out: Path | None) -> None:
    import sys

    from simulator.traces.write import write_trace, write_trace_to

    if out is None:
        write_trace_to(trace, sys.stdout)
        return
    write_trace(trace, out)
    typer.echo(f"{out}: {len(trace):,} jobs", err=True)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        fail(_COMMAND, f"--set {text!r} is not a setting; give NAME=VALUE")
    return name, value


def _total_gpus(cluster: str) -> int:
    nodes, _, gpus = cluster.partition("x")
    if not (nodes.isascii() and nodes.isdigit() and gpus.isascii() and gpus.isdigit() and int(nodes) and int(gpus)):
        fail(_COMMAND, f"--cluster {cluster!r} is not a cluster; give NxG, such as 8x8")
    return int(nodes) * int(gpus)


def _print(statistics: Statistics) -> None:
    from rich.table import Table

    from policies.documents import printable
    from simulator.results.table import plain_console, title_of

    console = plain_console()
    facts = Table(box=None, show_header=False, title=title_of(statistics.name), title_justify="left", title_style="")
    for name, value in _facts(statistics).items():
        facts.add_row(name, printable(value))
    sizes = Table("GPUs", "jobs", "of jobs", "of GPU time", box=None, header_style="bold")
    for each in statistics.sizes:
        sizes.add_row(str(each.gpus), f"{each.jobs:,}", f"{each.jobs_share:.1%}", f"{each.work_share:.1%}")
    hours = Table("hour", "submits", "GPU hours", "", box=None, header_style="bold")
    most = max(statistics.submits_by_hour)
    for hour, (submits, work) in enumerate(zip(statistics.submits_by_hour, statistics.gpu_hours_by_hour, strict=True)):
        hours.add_row(str(hour), f"{submits:,}", _gpu_hours(work), "█" * round(24 * submits / most))
    for table in (facts, sizes, *([hours] if statistics.span_s else [])):
        console.print(table)


def _facts(statistics: Statistics) -> dict[str, str]:
    """Return the figures that are single numbers, as texts."""
    facts = {
        "jobs": f"{statistics.jobs:,} over {_time(statistics.span_s)}",
        "gap between submits": "-"
        if statistics.mean_gap_s is None
        else f"{_time(statistics.mean_gap_s)} on average"
        + (f", varying by {statistics.gap_cv:.1f} of that" if statistics.gap_cv is not None else ""),
        "run time": ", ".join(f"{name} {_time(value)}" for name, value in statistics.duration_s.items()),
        "median by size": ", ".join(
            f"{name} GPU{'' if name == '1' else 's'} {_time(value)}"
            for name, value in statistics.duration_p50_by_size_s.items()
        ),
        "work": f"{_gpu_hours(statistics.gpu_hours)} GPU hours, {statistics.mean_gpus:.2f} GPUs a job",
        "users": f"{statistics.users:,}" if statistics.users else "not known",
    }
    for name, counts in (("clusters", statistics.vcs), ("models", statistics.models), ("ends", statistics.statuses)):
        if counts:
            facts[name] = ", ".join(f"{text} {count:,}" for text, count in counts.items())
    for name, count in (
        ("with a time limit", statistics.with_limit),
        ("not preemptible", statistics.not_preemptible),
        ("elastic", statistics.elastic),
    ):
        if count:
            facts[name] = f"{count:,} jobs"
    if statistics.load:
        offered = "all at once" if statistics.load.offered is None else f"{statistics.load.offered:.2f}"
        large = f"; {statistics.load.too_large:,} jobs are larger than it" if statistics.load.too_large else ""
        facts["load"] = f"{offered} on {statistics.load.cluster_gpus:,} GPUs{large}"
    return facts


def _gpu_hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 or not hours else f"{hours:.2g}"


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.3g} s"
