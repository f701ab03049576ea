"""Options that the commands of headway-sim share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TraceFile = Annotated[
    Path,
    typer.Option("--trace", help="CSV (also .gz, .zst) or parquet; headway-sim trace makes one from logs and papers."),
]
ClusterText = Annotated[
    str, typer.Option("--cluster", help="NxG: N nodes of G GPUs in one rack; or a TOML file.", metavar="NxG|FILE")
]
Slowdown = Annotated[
    list[str] | None,
    typer.Option(
        help="Why jobs run below their ideal speed, several times; none = not at all.",
        metavar="NAME[:k=v,…]",
        show_default="locality",
    ),
]
Placement = Annotated[
    str | None,
    typer.Option(
        help="consolidated, or any: also on the freest nodes where a job cannot be consolidated.",
        show_default="the policy's own",
    ),
]
PreemptCost = Annotated[
    float | None,
    typer.Option(
        "--preempt-cost", help="Seconds that every stop costs.", metavar="S", show_default="by the job's model"
    ),
]
Round = Annotated[
    float | None,
    typer.Option(
        "--round",
        help="Seconds between rounds of a policy that has them.",
        metavar="S",
        show_default="the policy's own",
    ),
]
Seed = Annotated[int | None, typer.Option(help="Of everything that is drawn.", metavar="N", show_default="0")]
Limit = Annotated[int | None, typer.Option(help="Only the first rows of the trace.", metavar="N", show_default="all")]
Estimates = Annotated[str, typer.Option(help="What policies know of durations: true, limit, noisy:SIGMA or history.")]
DropImpossible = Annotated[
    bool, typer.Option("--drop-impossible", help="Leave out jobs that the cluster can never hold, and count them.")
]
PreemptibleShare = Annotated[float, typer.Option(help="Share of the jobs that may be stopped.", metavar="0..1")]
CheckpointInterval = Annotated[
    float | None,
    typer.Option(
        help="Seconds of work between checkpoints, against failures.", metavar="S", show_default="only at stops"
    ),
]
Failures = Annotated[
    str | None,
    typer.Option(
        help="A CSV time_s,node,change with down, drain and up; or seconds between failures of a node and to its repair.",
        metavar="FILE|MTTF:MTTR",
        show_default="none",
    ),
]
ProfilesFile = Annotated[
    Path | None,
    typer.Option("--profiles", help="How models train, for the slowdown models.", show_default="the papers'"),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
