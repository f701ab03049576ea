"""`headway profile`: requests a profile, shows the node agents' measurements of jobs, or exports them for the simulator.

`headway profile JOBID` is short for `headway profile request JOBID`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from controller.cli.commands.call import connected, fail, show
from controller.cli.commands.options import Config, JobId, Json, Limit, SocketPath
from controller.cli.render.json_output import write_json
from controller.cli.render.profiles import show_export, show_profile, show_profiles, show_requested

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

_POLL_S = 1.0


class _JobFirst(TyperGroup):
    """A group whose first argument may be a job id: then its command is `request`."""

    # Any: some releases of typer bring click's classes along, under names of their own.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command for these arguments."""
        first = args[0] if args else ""
        return super().resolve_command(ctx, ["request", *args] if first[:1].isdecimal() else args)


profile_app = typer.Typer(
    cls=_JobFirst,
    help="Profile a job of your own (`headway profile JOBID`), show the node agents' measurements of it, or list and export "
    "those of all jobs (only for root and the controller's user).",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@profile_app.command("request", short_help="Profile the next steps of a running job.")
def profile_request(
    job_id: JobId,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, metavar="N", help="Optimizer steps to profile.", show_default="agents_profile_steps"
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the result, and show it. Exit code 1: there was none in time.")
    ] = False,
    within: Annotated[float, typer.Option(min=1.0, metavar="S", help="Longest time to wait, in seconds.")] = 300.0,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Profile the next steps of a running job: computation, communication, and how much of both overlaps."""
    with connected(config, socket, as_json) as client:
        before_s = _newest_s(client.profile_if_any(job_id)) if wait else 0.0
        requested = client.request_profile(job_id, steps)
        if not wait:
            show(requested, as_json, show_requested)
            return
        if not as_json:
            show_requested(requested)
        until_s = time.monotonic() + within
        while time.monotonic() < until_s:
            time.sleep(_POLL_S)
            found = client.profile_if_any(job_id)
            if found is not None and _newest_s(found) > before_s:
                show(found, as_json, show_profile)
                return
        fail(
            f"job {job_id} has given no profile within {within:g} s: it may have made too few steps, or torch's profiler does not "
            "work in it (the agents' logs say so)",
            1,
            as_json,
        )


def _newest_s(found: admin_pb2.JobMeasurements | None) -> float:
    """Return the time of the newest profile, Unix time; 0 when there is none."""
    return max((split.time_s for split in found.steps), default=0.0) if found is not None else 0.0


@profile_app.command("list", short_help="List the kinds of jobs that were measured.")
def profile_list(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """List the kinds of jobs (user, script, model, shape) that were measured, the newest first, with their speed alone and now."""
    with connected(config, socket, as_json, change=True) as client:
        show(client.profiles(0 if as_json else limit), as_json, show_profiles)


@profile_app.command("show", short_help="Show the parts of a job's step time, and its speed.")
def profile_show(
    job_id: JobId, as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None
) -> None:
    """Show the parts of a job's step time, and its speed in every window with the jobs beside it."""
    with connected(config, socket, as_json) as client:
        show(client.profile(job_id, 0 if as_json else limit), as_json, show_profile)


@profile_app.command("export", short_help="Write a file of job profiles for the simulator.")
def profile_export(
    to: Annotated[Path, typer.Option("--to", help="File to write, for headway-sim --profiles.", metavar="FILE.json")],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the measurements behind the fit, as CSV files.",
            metavar="FOLDER",
            show_default="none written",
        ),
    ] = None,
    cluster_toml: Annotated[
        Path | None,
        typer.Option(
            "--cluster", help="File with the racks, as `headway cluster --toml` writes it.", show_default="one rack"
        ),
    ] = None,
    days: Annotated[float, typer.Option(min=0.0, help="Use the measurements of this many last days.")] = 30.0,
    as_json: Json = False,
    config: Config = None,
    socket: SocketPath = None,
) -> None:
    """Write a file of job profiles for the simulator, fitted to the measurements of this cluster."""
    from controller.cli.profile_export import ExportError, export, racks_of

    with connected(config, socket, as_json, change=True) as client:
        try:
            found = client.export_profiles(time.time() - days * 86400, racks_of(cluster_toml))
            done = export(found, to, rows)
        except ExportError as error:
            fail(str(error), 1, as_json)
        if as_json:
            write_json(done)
        else:
            show_export(done)
