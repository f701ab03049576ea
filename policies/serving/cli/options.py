"""Options of the commands of headway-policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from policies.learned.training.systems import SetupOverrides

WARM_UP = "srtf"
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Traces = Annotated[
    list[str] | None,
    typer.Option(
        help="A trace as headway-sim reads it, output of sacct, or FORMAT:FILE for logs that headway-sim trace converts. "
        "May be repeated.",
        metavar="FILE",
        show_default="the system's own workloads",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="N nodes of G GPUs, or a TOML file (headway cluster).", metavar="NxG|FILE", show_default="the system's"
    ),
]
Slowdown = Annotated[
    list[str] | None,
    typer.Option(
        help="A model of why jobs run below their ideal speed. May be repeated; `none` is no slowdown.",
        metavar="NAME[:k=v,…]",
        show_default="the system's",
    ),
]
Profiles = Annotated[
    str | None,
    typer.Option(
        help="Profiles of trained models, as headway profile export writes them.",
        metavar="FILE",
        show_default="the papers'",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A field of the recipe, as name=value. May be repeated; a wrong name lists all names.",
    ),
]

Weights = Annotated[
    str | None,
    typer.Option(
        help="Folder of a policy training, for policies that have weights.", metavar="FOLDER", show_default="shipped"
    ),
]
WholeTrace = Annotated[
    bool,
    typer.Option(
        "--whole-trace",
        "--whole",
        help="Use all jobs of each trace, not only the last fifth: for traces that no training used. The first tenth of them fills "
        "the cluster.",
    ),
]
Windows = Annotated[
    bool,
    typer.Option(
        "--windows",
        help="Cut traces into windows of about as many jobs as the system's episodes, which give an interval; without it, each "
        "trace is one run.",
    ),
]
WarmUp = Annotated[
    str,
    typer.Option(
        help="The policy that runs the jobs before, so that each run of a trace begins as full as the cluster was then.",
        metavar="POLICY",
    ),
]
SystemOf = Annotated[
    str | None,
    typer.Option(
        help="System whose workloads and cluster are used.", metavar="SYSTEM", show_default="the learned policy's"
    ),
]
TestSeeds = Annotated[
    int | None,
    typer.Option(min=1, max=1000, help="Test seeds of workloads; runs of traces.", show_default="5; all runs"),
]
SystemName = Annotated[str, typer.Argument(metavar="SYSTEM", help="System to train; a wrong name lists all names.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the policy training.", metavar="FOLDER", show_default="SYSTEM-seedN, here"),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Rounds of the policy training.", metavar="N", show_default="the recipe's")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same weights, on the CPU.")]
Seeds = Annotated[
    int, typer.Option(min=1, metavar="N", help="Train N seeds in parallel, from --seed on, each in FOLDER/seed-K.")
]
Submit = Annotated[bool, typer.Option("--submit", help="Train in Slurm jobs, one for each seed, and return at once.")]
SlurmOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="Options of these jobs, as for sbatch: partition, account, time in minutes, ..."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the policy training in the folder, with the same options.")
]
PointEvery = Annotated[float, typer.Option(min=0.0, help="Seconds between two checkpoints.", metavar="S")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, or cuda where the system trains on it.")]
Engine = Annotated[
    str, typer.Option(metavar="NAME", help="house: the system's own recipe; sb3: stable-baselines3, to compare.")
]


def overrides(
    traces: list[str] | None,
    cluster: str | None,
    slowdown: list[str] | None,
    profiles: str | None,
    *,
    whole: bool = False,
    windows: bool = True,
    warm_up: str = WARM_UP,
) -> SetupOverrides:
    """Return what the user gave in place of the system's own workloads, cluster, slowdown and profiles."""
    from policies.learned.training.systems import SetupOverrides

    slowdowns = tuple(slowdown) if slowdown else None
    return SetupOverrides(
        traces=tuple(traces or ()),
        cluster=cluster,
        slowdown=slowdowns,
        profiles=profiles,
        whole=whole,
        windows=windows,
        warm_up=warm_up,
    )


def fail(command: str, problem: object) -> NoReturn:
    """Print an error as one line on standard error, and exit with code 1."""
    typer.echo(f"headway-policy {command}: {' '.join(str(problem).split())}", err=True)
    raise typer.Exit(1)
