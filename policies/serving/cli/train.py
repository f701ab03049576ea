"""headway-policy train: learned policies, trained in the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policies.serving.cli import options as given

if TYPE_CHECKING:
    from policies.learned.training.training import Order, Trained

STOPPED = 130


def train(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="What to train; a wrong name tells which there are.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The training's folder.", metavar="FOLDER", show_default="SYSTEM-seedN, here"),
    ] = None,
    traces: given.Traces = None,
    cluster: given.Cluster = None,
    slowdown: given.Slowdown = None,
    profiles: given.Profiles = None,
    settings: given.Settings = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of training.", metavar="N", show_default="the recipe's")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The same seed gives the same weights, on the CPU.")
    ] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Train so many seeds, from --seed on, in parallel; each in FOLDER/seed-K."
        ),
    ] = 1,
    submit: Annotated[
        bool, typer.Option("--submit", help="Train in Slurm jobs, one for each seed, and return at once.")
    ] = False,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Of the jobs, as sbatch has it: partition, account, time in minutes, ..."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is in the folder, by the same command.")
    ] = False,
    point_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which a point to go on from is written.", metavar="S")
    ] = 30.0,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, or cuda where the system trains on it.")] = "cpu",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="house: the system's own recipe; sb3: stable-baselines3, to compare.")
    ] = "house",
    as_json: given.AsJson = False,
) -> None:
    """Train a learned policy. Ends early when validation gets no better; after a kill, --resume goes on.

    Progress is told on standard error, figures go to FOLDER/events (tensorboard --logdir FOLDER), the best weights and their card
    to FOLDER/best.
    """
    from policies.errors import PolicyError, TrainingStoppedError
    from policies.learned.training.systems import Given
    from policies.learned.training.training import Order
    from policies.learned.training.training import train as train_it

    order = Order(
        system=system,
        folder=out or Path(f"{system}-seeds" if seeds > 1 or submit else f"{system}-seed{seed}"),
        given=Given(
            traces=tuple(traces or ()),
            cluster=cluster,
            slowdown=tuple(slowdown) if slowdown else None,
            profiles=profiles,
        ),
        settings=tuple(settings or ()),
        rounds=rounds,
        seed=seed,
        resume=resume,
        point_every_s=point_every,
        device=device,
        engine=engine,
    )
    try:
        if submit:
            _submit(order, seeds, slurm or [], as_json)
        elif seeds > 1:
            _train_seeds(order, seeds, as_json)
        else:
            _tell(train_it(order), as_json)
    except TrainingStoppedError as stopped:
        typer.echo(f"headway-policy train: {stopped}", err=True)
        raise typer.Exit(STOPPED) from None
    except PolicyError as error:
        given.fail("train", error)


def _submit(order: Order, count: int, slurm: list[str], as_json: bool) -> None:
    from policies.learned.training.seeds import orders
    from policies.learned.training.slurm_jobs import LOGS, options_of, submit

    every = orders(order, count)
    jobs = submit(every, options_of(slurm))
    rows = [{"seed": each.seed, "folder": str(each.folder), "job": job} for each, job in zip(every, jobs, strict=True)]
    if as_json:
        typer.echo(json.dumps({"jobs": rows}, indent=2))
        return
    for row in rows:
        typer.echo(f"job {row['job']}: seed {row['seed']} in {row['folder']}")
    typer.echo(f"what they say is in {order.folder / LOGS}; after a failure, the same command with --resume goes on")


def _train_seeds(order: Order, count: int, as_json: bool) -> None:
    import os
    import sys

    from policies.learned.evaluation.statistics import Mean
    from policies.learned.training.seeds import orders, train_all

    every = orders(order, count)
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


def _tell(trained: Trained, as_json: bool) -> None:
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
