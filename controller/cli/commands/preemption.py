"""`headway preempt`, `move`, `resize` and `preemptions`: stop a job, once it has saved, and place it again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.cli.commands.call import connected, show
from controller.cli.commands.options import Config, JobId, Json, Limit, SocketPath
from controller.cli.render.json_output import plain, write_json
from controller.cli.render.preemptions import show_budget, show_preemptions, show_stage

if TYPE_CHECKING:
    from controller.cli.client import AdminClient
    from protos.headway.v1 import admin_pb2

_POLL_S = 0.2
_RESTART_S = 60.0
"""Time to wait for a controller that restarts during a preemption, in seconds."""

Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Stop the job even if it cannot save, or does not save in time. Its work since the last checkpoint is lost.",
    ),
]
Within = Annotated[
    float | None,
    typer.Option(metavar="S", help="Time to save a checkpoint, in seconds.", show_default="preemption_within_s"),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until the job trains again. Exit code 1: it was not stopped, or ended before its first new step.",
    ),
]


_RANKS = (
    "A job that asked for GPUs by node keeps their number on each node, and gets other nodes. With one rank for each GPU and a\n"
    "fixed batch for each rank, the batch of all ranks together changes with the GPUs: adapt the learning rate, or accumulate."
)
"""The effect of another number of GPUs on a training script."""


def preempt(
    job_id: JobId,
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Let a running job save a checkpoint, stop it, and let the policy place it again."""
    _preempt(_Request(job_id, force, within, wait), as_json, config, socket)


def move(
    job_id: JobId,
    to: Annotated[
        str, typer.Option("--to", metavar="N1,N2", help="Nodes that the job may run on; no other nodes.")
    ] = "",
    off: Annotated[str, typer.Option("--off", metavar="N3", help="Nodes that the job may not run on.")] = "",
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Preempt a job and place it on other nodes: those of --to, any except those of --off, or any except its present ones."""
    only, avoid = _names(to), _names(off)
    more = {"only": only, "avoid": avoid, "away": not only and not avoid}
    _preempt(_Request(job_id, force, within, wait, more), as_json, config, socket)


def resize(
    job_id: JobId,
    gpus: Annotated[int, typer.Option("--gpus", min=1, metavar="N", help="Total number of GPUs from now on.")],
    force: Force = False,
    within: Within = None,
    wait: Wait = False,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Preempt a job and start it with another number of GPUs; its tasks, CPUs and memory change with them."""
    _preempt(_Request(job_id, force, within, wait, {"gpus": gpus}, note=_RANKS), as_json, config, socket)


def preemptions(as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None) -> None:
    """List jobs that were preempted or are about to be, the newest first."""
    with connected(config, socket, as_json) as client:
        show(client.preemptions(0 if as_json else limit), as_json, show_preemptions)


@dataclass(frozen=True)
class _Request:
    """A preemption as the command line gives it."""

    job_id: str
    force: bool
    within_s: float | None
    wait: bool
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of PreemptRequest."""
    note: str = ""
    """Facts about the job that its user should know afterwards."""


def _preempt(request: _Request, as_json: bool, config: Path | None, socket: Path | None) -> None:
    """Begin a preemption; with --wait, show its progress until it ends."""
    from protos.headway.v1 import admin_pb2

    message = admin_pb2.PreemptRequest(
        job_id=request.job_id, force=request.force, within_s=request.within_s, **request.more
    )
    with connected(config, socket, as_json) as client:
        found = client.preempt(message)
        if not as_json:
            show_stage(found)
            if request.note:
                typer.echo(request.note)
            show_budget(found)
        while request.wait and found.open:
            time.sleep(_POLL_S)
            before, found = found, _poll(client, found)
            if not as_json and found.stage != before.stage:
                show_stage(found)
        if as_json:
            write_json(plain(found))
    if request.wait and found.stage not in {"started", "resumed"}:
        if found.HasField("started_s"):
            output = f"`scontrol show job {request.job_id}` names the file of its output"
            typer.echo(f"headway: {found.problem}; {output}, and shows its exit code", err=True)
        raise typer.Exit(1)


def _poll(client: AdminClient, found: admin_pb2.PreemptionRecord) -> admin_pb2.PreemptionRecord:
    """Return the present state of a preemption. If the controller restarts, wait for it, because it continues the preemption."""
    from controller.cli.client import UNREACHABLE, CallError

    until_s = time.monotonic() + _RESTART_S
    while True:
        try:
            return client.preemption(found.number)
        except CallError as error:
            if error.exit_code != UNREACHABLE or time.monotonic() > until_s:
                raise
            time.sleep(_POLL_S)


def _names(listed: str) -> list[str]:
    return [name for name in listed.split(",") if name]
