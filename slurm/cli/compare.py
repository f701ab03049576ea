"""headway-minicluster compare: policies on the same real jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm.cli.options import Json, policies_in, report, require_slurm, require_writable, write_json

if TYPE_CHECKING:
    from slurm.experiments.comparison.comparison import ComparisonSettings, PolicyRun

Policies = Annotated[
    str, typer.Option(help="Names with commas between, each with its options: a,b:key=value.", metavar="A,B,C")
]
Load = Annotated[float, typer.Option(help="Requested GPU time over available GPU time.")]
Shortest = Annotated[float, typer.Option(help="Duration of the shortest job when it runs alone, in seconds.")]
Longest = Annotated[float, typer.Option(help="Duration of the longest job when it runs alone, in seconds.")]
Preemption = Annotated[str, typer.Option(help="off, or automatic: whether policies may stop jobs.")]
Out = Annotated[
    Path | None,
    typer.Option(help="A file for all results as JSON, rewritten after each run of a policy.", show_default=False),
]


def compare(
    policies: Policies = "headway-rl,rl-hybrid,srtf,las",
    jobs: Annotated[int, typer.Option(min=1, help="Jobs of a repeat.")] = 30,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats; each has other arrivals.")] = 3,
    rate: Annotated[str, typer.Option(help="Bandwidth of each NIC in both directions.")] = "200mbit",
    seed: Annotated[int, typer.Option(help="Seed of the arrivals in the first repeat.")] = 1,
    load: Load = 1.0,
    shortest: Shortest = 8.0,
    longest: Longest = 90.0,
    preemption: Preemption = "off",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Let policies take turns on the same real DDP jobs of a mini-cluster, served over gRPC; some minutes for each turn."""
    from slurm.errors import SpecError
    from slurm.experiments.comparison.comparison import ComparisonSettings
    from slurm.experiments.comparison.comparison import compare as run

    names = policies_in(policies)
    if not 0 < shortest <= longest or not load > 0:
        raise SpecError(
            f"--shortest {shortest:g}, --longest {longest:g}, --load {load:g}: give 0 < shortest <= longest, and a load above 0"
        )
    if preemption not in ("off", "automatic"):
        raise SpecError(f"--preemption {preemption}: give off or automatic")
    require_writable(out)
    require_slurm()
    settings = ComparisonSettings(
        policies=tuple(names),
        jobs=jobs,
        repeats=repeats,
        rate=rate,
        seed=seed,
        load=load,
        length_s=(shortest, longest),
        preemption=preemption,
    )

    def keep(runs: Sequence[PolicyRun]) -> None:
        if out is not None:
            write_json(out, _found(settings, runs))

    runs = run(settings, report, keep)
    if as_json:
        typer.echo(json.dumps(_found(settings, runs), indent=1))
    else:
        _print(_found(settings, runs)["summary"])


def _found(settings: ComparisonSettings, runs: Sequence[PolicyRun]) -> dict[str, Any]:
    """Return everything that is known after these runs, as values that JSON has."""
    from slurm.experiments.comparison.comparison import summary
    from slurm.experiments.machine import machine

    return {
        "settings": asdict(settings),
        "machine": machine(),
        "summary": summary(runs, settings.policies),
        "runs": [asdict(run) for run in runs],
    }


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    others = [row["policy"] for row in rows]
    table = Table("policy", box=None, header_style="bold")
    for word in ("average JCT, s", "p90 JCT, s", "stops", *(f"against {other}" for other in others)):
        table.add_column(word, justify="right", no_wrap=True)
    for row in rows:
        against = [_share(row["against"][other]) if other in row["against"] else "" for other in others]
        jct = (_seconds(row["avg_jct_s"]), _seconds(row["p90_jct_s"]))
        table.add_row(row["policy"], *jct, str(row["stops"]), *against)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
    typer.echo(
        "means over repeats; ± half of the 95 % interval (Student's t); changes of the average JCT, repeat by repeat"
    )


def _seconds(pair: Mapping[str, float | None]) -> str:
    return f"{pair['mean']:.1f}" + (f" ± {pair['ci95']:.1f}" if pair["ci95"] is not None else "")


def _share(pair: Mapping[str, float | None]) -> str:
    return f"{100 * (pair['mean'] or 0):+.1f} %" + (f" ± {100 * pair['ci95']:.1f}" if pair["ci95"] is not None else "")
