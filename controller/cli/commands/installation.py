"""`headway doctor` and `headway cluster`: they read the installation and Slurm, and need no running controller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.cli.commands.call import fail
from controller.cli.commands.options import Config, Json
from controller.cli.render.findings import show_findings
from controller.cli.render.json_output import write_json


def doctor(as_json: Json = False, config: Config = None) -> None:
    """Check the installation, and list each problem with its remedy."""
    from controller.cli.doctor.cli import examine

    findings = examine(config)
    if as_json:
        write_json({"findings": findings})
    else:
        show_findings(findings)
    raise typer.Exit(1 if any(finding["level"] == "error" for finding in findings) else 0)


def cluster(
    as_toml: Annotated[
        bool, typer.Option("--toml", help="Print a file for headway-sim --cluster (this is the default).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    topology_conf: Annotated[
        Path | None, typer.Option(help="File with the switches.", show_default="what Slurm itself shows")
    ] = None,
    config: Config = None,
) -> None:
    """Print the managed nodes with GPUs and their network, read from Slurm, as a file for headway-sim run --cluster."""
    from controller.cli.cluster import UnknownClusterError, as_object, as_text, read

    if as_toml and as_json:
        raise typer.BadParameter("give --toml or --json, not both")
    try:
        found = read(config, topology_conf)
    except UnknownClusterError as error:
        fail(str(error), error.exit_code, as_json)
    if as_json:
        write_json(as_object(found))
    else:
        typer.echo(as_text(found), nl=False)
