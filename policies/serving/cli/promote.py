"""headway-policy promote: new weights replace those in service only if they are better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policies.serving.cli import options

if TYPE_CHECKING:
    from policies.learned.evaluation.promotion import Promotion


System = Annotated[str, typer.Argument(metavar="SYSTEM", help="System of the weights; a wrong name lists all names.")]
Candidate = Annotated[
    Path | None, typer.Argument(metavar="[CANDIDATE]", help="Folder of the training with the new weights.")
]
Over = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of the weights in service, which are replaced.")
]
Served = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="The policy that serves the weights, by which they are judged; it can have options (NAME:key=value,...).",
        show_default="the system's first",
    ),
]
Undo = Annotated[bool, typer.Option("--undo", help="Return to the weights before the last promotion.")]
Shipped = Annotated[
    bool, typer.Option("--shipped", help="Return to the weights that the policy began with, such as the shipped ones.")
]


def promote(
    system: System,
    candidate: Candidate = None,
    over: Over = None,
    policy: Served = None,
    undo: Undo = False,
    shipped: Shipped = False,
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
        if candidate is None:
            typer.echo(_return(over, shipped=shipped))
            return
        request = evaluation.EvaluationRequest(
            policies=(),
            overrides=options.overrides(traces, cluster, slowdown, profiles, whole=whole_trace, warm_up=warm_up),
            settings=tuple(settings or ()),
            seeds=seeds,
        )
        found = promotion.promote(system, candidate, over, request, lambda _: None, policy=policy)
    except (PolicyError, OSError) as error:
        options.fail("promote", error)
    typer.echo(_as_json(found) if as_json else _as_text(found, over))
    if not found.promoted:
        raise typer.Exit(3)


def _return(over: Path, *, shipped: bool) -> str:
    """Return to other weights, and return a sentence about it. Raises TrainingError, OSError."""
    from policies.learned.evaluation import promotion

    if shipped:
        promotion.return_to_shipped(over)
        return f"{over} has no weights in service any more; those before are in {over / promotion.PREVIOUS}"
    promotion.undo(over)
    return f"{over} has the weights from before the last promotion again"


def _as_json(found: Promotion) -> str:
    from policies.learned.evaluation import evaluation

    facts = {"promoted": found.promoted, "why_not": found.why_not, **evaluation.as_json(found.evaluation)}
    return json.dumps(facts, indent=2)


def _as_text(found: Promotion, over: Path) -> str:
    from policies.learned.evaluation import promotion

    if not found.promoted:
        return f"not promoted: {found.why_not}"
    change = found.evaluation.changes[found.candidate]
    by = "" if change is None else f": average JCT {change.mean:+.1%} ± {change.ci95 or 0.0:.1%}"
    return f"promoted{by}; the weights before are in {over / promotion.PREVIOUS}"
