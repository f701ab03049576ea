"""headway-policy train: train a learned policy in the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from policies.serving.cli import options

if TYPE_CHECKING:
    from policies.learned.training.train import TrainingRequest, TrainingResult

STOPPED = 130


def train(
    system: options.SystemName,
    out: options.Out = None,
    traces: options.Traces = None,
    cluster: options.Cluster = None,
    slowdown: options.Slowdown = None,
    profiles: options.Profiles = None,
    settings: options.Settings = None,
    rounds: options.Rounds = None,
    seed: options.Seed = 0,
    seeds: options.Seeds = 1,
    submit: options.Submit = False,
    slurm: options.SlurmOptions = None,
    resume: options.Resume = False,
    point_every: options.PointEvery = 30.0,
    device: options.Device = "cpu",
    engine: options.Engine = "house",
    as_json: options.AsJson = False,
) -> None:
    """Train a learned policy. It ends early when validation no longer improves; --resume continues one that was stopped.

    Progress is written to standard error, figures to FOLDER/events (tensorboard --logdir FOLDER), the best weights and their card
    to FOLDER/best.
    """
    from policies.learned.training.train import TrainingRequest

    request = TrainingRequest(
        system=system,
        folder=out or Path(f"{system}-seeds" if submit or seeds > 1 else f"{system}-seed{seed}"),
        overrides=options.overrides(traces, cluster, slowdown, profiles),
        settings=tuple(settings or ()),
        rounds=rounds,
        seed=seed,
        resume=resume,
        point_every_s=point_every,
        device=device,
        engine=engine,
    )
    _carry_out(request, seeds, (slurm or []) if submit else None, as_json)


def _carry_out(request: TrainingRequest, seeds: int, slurm: list[str] | None, as_json: bool) -> None:
    """Train, or with options for Slurm submit jobs that train; errors end the program."""
    from policies.errors import PolicyError, TrainingStoppedError
    from policies.learned.training.train import train as train_it

    try:
        if slurm is not None:
            _submit(request, seeds, slurm, as_json)
        elif seeds > 1:
            _train_seeds(request, seeds, as_json)
        else:
            _report(train_it(request), as_json)
    except TrainingStoppedError as stopped:
        typer.echo(f"headway-policy train: {stopped}", err=True)
        raise typer.Exit(STOPPED) from None
    except PolicyError as error:
        options.fail("train", error)


def _submit(request: TrainingRequest, count: int, slurm: list[str], as_json: bool) -> None:
    from policies.learned.training.several_seeds import requests
    from policies.learned.training.slurm_jobs import LOGS, options_of, submit

    every = requests(request, count)
    jobs = submit(every, options_of(slurm))
    rows = [{"seed": each.seed, "folder": str(each.folder), "job": job} for each, job in zip(every, jobs, strict=True)]
    if as_json:
        typer.echo(json.dumps({"jobs": rows}, indent=2))
        return
    for row in rows:
        typer.echo(f"job {row['job']}: seed {row['seed']} in {row['folder']}")
    typer.echo(
        f"their output is in {request.folder / LOGS}; after a failure, continue with the same command and --resume"
    )


def _train_seeds(request: TrainingRequest, count: int, as_json: bool) -> None:
    import os
    import sys

    from policies.learned.evaluation.statistics import Mean
    from policies.learned.training.several_seeds import requests, train_all

    every = requests(request, count)
    cards = train_all(every, os.cpu_count() or 1, sys.stderr)
    figures = [card.results["validation"] for card in cards]
    mean = Mean.of(figures)
    if as_json:
        rows = [
            {"seed": each.seed, "folder": str(each.folder), "card": json.loads(card.to_json())}
            for each, card in zip(every, cards, strict=True)
        ]
        typer.echo(json.dumps({"trainings": rows, "validation": {"mean": mean.mean, "ci95": mean.ci95}}, indent=2))
        return
    for each, figure in zip(every, figures, strict=True):
        typer.echo(f"{each.folder}: validation {figure:,.6g}")
    typer.echo(f"mean {mean.mean:,.6g} ± {mean.ci95:,.3g}, half of the 95 % interval (Student's t)")


def _report(trained: TrainingResult, as_json: bool) -> None:
    card = trained.card
    if as_json:
        facts = {"folder": str(trained.folder.parent), "weights": str(trained.folder / f"{trained.name}.safetensors")}
        typer.echo(json.dumps(facts | {"wall_s": trained.wall_s, "card": json.loads(card.to_json())}, indent=2))
        return
    typer.echo(
        f"{trained.folder}: the best of {trained.wall_s:.0f} s, {card.parameters:,} parameters, seed {card.seed}"
    )
    for name, value in card.results.items():
        typer.echo(f"  {name:<16} {value:,.6g}")
    if trained.name == trained.system.name:
        for policy in trained.system.policies:
            typer.echo(f"headway-policy evaluate fifo-skip {policy} --weights {trained.folder.parent}")
