"""`headway profile`: shows the node agents' measurements of jobs, or exports them for the simulator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.commands.call import connected, fail, show
from controller.cli.commands.options import Config, JobId, Json, Limit, SocketPath
from controller.cli.render.json_output import write_json
from controller.cli.render.profiles import show_export, show_profile, show_profiles

profile_app = typer.Typer(
    help="Show or export the node agents' measurements of jobs (only for root and the controller's user).",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@profile_app.command("list")
def profile_list(as_json: Json = False, limit: Limit = 100, config: Config = None, socket: SocketPath = None) -> None:
    """List the kinds of jobs (user, script, model, shape) that were measured, the newest first, with their speed alone and now."""
    with connected(config, socket, as_json, change=True) as client:
        show(client.profiles(0 if as_json else limit), as_json, show_profiles)


@profile_app.command("show")
def profile_show(
    job_id: JobId, as_json: Json = False, limit: Limit = 20, config: Config = None, socket: SocketPath = None
) -> None:
    """Show the parts of a job's step time, and its speed in every window with the jobs beside it."""
    with connected(config, socket, as_json, change=True) as client:
        show(client.profile(job_id, 0 if as_json else limit), as_json, show_profile)


@profile_app.command("export")
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
