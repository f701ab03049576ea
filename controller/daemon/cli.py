"""headway-controller: runs the daemon, checks its settings, or runs the watchdog."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from policies.serving.runtime.version import version_option

app = typer.Typer(
    help="Run the Headway controller beside slurmctld, or the watchdog that releases jobs while the controller is away.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Config = Annotated[Path, typer.Option("--config", "-c", help="Settings file.")]
_DEFAULT_CONFIG = Path("/etc/headway/controller.toml")


@app.callback()
def _root(_version: Annotated[bool, version_option("headway-controller")] = False) -> None:
    """Run the Headway controller, or the watchdog."""


@app.command()
def run(config: Config = _DEFAULT_CONFIG) -> None:
    """Run the controller in the foreground until SIGTERM; SIGHUP makes it read the settings again."""
    import asyncio

    from controller.daemon.assemble import run_controller

    _or_exit(lambda: asyncio.run(run_controller(config)))


@app.command("check-config")
def check_config(config: Config = _DEFAULT_CONFIG) -> None:
    """Read the settings file, and report each wrong key, and each partition that Slurm does not have."""
    _or_exit(lambda: typer.echo(_checked(config)))


def _checked(config: Path) -> str:
    """Return the text about a settings file that is in order. Raises HeadwayError."""
    from controller.base.config import load_settings
    from controller.base.errors import ConfigurationError
    from controller.daemon.partitions import require_partitions
    from controller.slurm.select import command_line_client
    from controller.slurm.slurmctld_hosts import read_slurmctld_hosts

    settings = load_settings(config)
    if settings.slurm_client == "embedded":
        return f"{config}: in order"
    try:
        read_slurmctld_hosts(settings)
        not_checked = require_partitions(settings, command_line_client(settings))
    except ConfigurationError as error:
        raise ConfigurationError(f"{config}: {error}") from error
    return f"{config}: in order" + (f"\n{not_checked}" if not_checked else "")


@app.command()
def watchdog(
    config: Config = _DEFAULT_CONFIG,
    every: Annotated[
        float | None, typer.Option(help="Interval between two checks, in seconds; without it, check once.")
    ] = None,
) -> None:
    """Release the jobs that Headway holds if the controller's lease is stale."""
    from controller.daemon.watchdog.run import run_watchdog
    from controller.daemon.watchdog.settings import watchdog_settings
    from policies.serving.runtime.logs import set_up_logging

    settings, _ = watchdog_settings(config)
    set_up_logging(settings.log_level, settings.log_format)
    raise typer.Exit(run_watchdog(lambda: watchdog_settings(config), every))


def _or_exit(action: object) -> None:
    """Run the action; an error that a user can correct is printed as one message, with exit status 1."""
    from controller.base.errors import HeadwayError
    from policies.errors import PolicyError

    assert callable(action)
    try:
        action()
    except (HeadwayError, PolicyError) as error:
        typer.echo(f"headway-controller: {error}", err=True)
        raise typer.Exit(1) from error


def main() -> None:
    """Entry point."""
    app()
