"""headway-sim run: one policy on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli import options as given

PolicyText = Annotated[
    str, typer.Option("--policy", help="headway-policy list names them.", metavar="NAME[:key=value,…]")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A folder for jobs.csv, series.csv and summary.json.", metavar="DIR", show_default=False
    ),
]


def run(
    trace: given.TraceFile,
    cluster: given.ClusterText,
    policy: PolicyText,
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
    """Simulate one policy on one trace."""
    from simulator.runs.one import run as run_one
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
    run_one(options, policy, out, as_json)
