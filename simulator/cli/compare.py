"""headway-sim compare: several policies on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli import options as given

Policies = Annotated[
    str,
    typer.Option(
        "--policies", help="Names with commas between, each with its options: a,b:key=value.", metavar="A,B,C"
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A folder for report.html, and for the files of each policy.", metavar="DIR", show_default=False
    ),
]


def compare(
    trace: given.TraceFile,
    cluster: given.ClusterText,
    policies: Policies,
    slowdown: given.Slowdown = None,
    placement: given.Placement = None,
    preempt_cost: given.PreemptCost = None,
    round_s: given.Round = None,
    seed: given.Seed = None,
    limit: given.Limit = None,
    estimates: given.Estimates = "true",
    drop_impossible: given.DropImpossible = False,
    preemptible_share: given.PreemptibleShare = 1.0,
    checkpoint_interval: given.CheckpointInterval = None,
    failures: given.Failures = None,
    profiles: given.ProfilesFile = None,
    out: Out = None,
    as_json: given.AsJson = False,
) -> None:
    """Simulate several policies on one trace, in parallel: a table, and with --out a page to look at."""
    from simulator.runs.compare import compare as compare_all
    from simulator.runs.scenario import Options

    options = Options(
        trace=trace,
        cluster=cluster,
        slowdown=tuple(slowdown or ("locality",)),
        placement=placement,
        preempt_cost_s=preempt_cost,
        round_s=round_s,
        seed=seed,
        limit=limit,
        estimates=estimates,
        drop_impossible=drop_impossible,
        preemptible_share=preemptible_share,
        checkpoint_interval_s=checkpoint_interval,
        failures=failures,
        profiles=profiles,
    )
    compare_all(options, names_in(policies), out, as_json)


def names_in(text: str) -> list[str]:
    """The policies of `a,b:key=value,c`: a comma begins a new policy unless what follows is another key=value of the last one."""
    names: list[str] = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        head = item.partition(":")[0]
        if names and "=" in head and ":" in names[-1]:
            names[-1] += f",{item}"
        else:
            names.append(item)
    return names
