"""headway-policy promote: new weights replace those in service only if they are better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from policies.serving.cli import options


def promote(
    system: Annotated[
        str, typer.Argument(metavar="SYSTEM", help="System of the weights; a wrong name lists all names.")
    ],
    candidate: Annotated[
        Path | None, typer.Argument(metavar="[CANDIDATE]", help="Folder of the training with the new weights.")
    ] = None,
    over: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the weights in service, which are replaced.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Return to the weights before the last promotion.")] = False,
    shipped: Annotated[
        bool,
        typer.Option("--shipped", help="Return to the weights that the policy began with, such as the shipped ones."),
    ] = False,
    traces: options.Traces = None,
    whole_trace: options.WholeTrace = False,
    warm_up: options.WarmUp = options.WARM_UP,
    cluster: options.Cluster = None,
    slowdown: options.Slowdown = None,
    profiles: options.Profiles = None,
    settings: options.Settings = None,
    seeds: options.TestSeeds = None,
    as_json: options.AsJson = False,
) -> None:
    """Replace the weights in service by new ones, if these are better on a replay of the cluster's history.

    Better: the 95 % interval of the change of the average JCT is below zero (Student's t over windows). Exit code 3: not promoted.
    """
    from policies.errors import PolicyError, TrainingError
    from policies.learned.evaluation import evaluation, promotion

    try:
        if over is None or [candidate is not None, undo, shipped].count(True) != 1:
            raise TrainingError("give SYSTEM CANDIDATE --over FOLDER, or SYSTEM --undo (or --shipped) --over FOLDER")
        if shipped:
            promotion.return_to_shipped(over)
            typer.echo(f"{over} has no weights in service any more; those before are in {over / promotion.PREVIOUS}")
            return
        if candidate is None:
            promotion.undo(over)
            typer.echo(f"{over} has the weights from before the last promotion again")
            return
        request = evaluation.EvaluationRequest(
            policies=(),
            overrides=options.overrides(traces, cluster, slowdown, profiles, whole=whole_trace, warm_up=warm_up),
            settings=tuple(settings or ()),
            seeds=seeds,
        )
        found = promotion.promote(system, candidate, over, request, lambda _: None)
    except (PolicyError, OSError) as error:
        options.fail("promote", error)
    if as_json:
        facts = {"promoted": found.promoted, "why_not": found.why_not, **evaluation.as_json(found.evaluation)}
        typer.echo(json.dumps(facts, indent=2))
    elif found.promoted:
        change = found.evaluation.changes[found.candidate]
        by = "" if change is None else f": average JCT {change.mean:+.1%} ± {change.ci95 or 0.0:.1%}"
        typer.echo(f"promoted{by}; the weights before are in {over / promotion.PREVIOUS}")
    else:
        typer.echo(f"not promoted: {found.why_not}")
    if not found.promoted:
        raise typer.Exit(3)
