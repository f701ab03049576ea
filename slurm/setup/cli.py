"""headway-setup: show as a diff what a Slurm installation lacks for Headway, and install it with --apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from policies.serving.runtime.version import version_option

if TYPE_CHECKING:
    from controller.slurm.configuration.conf import SlurmConf

app = typer.Typer(
    help="Install the parts of Headway that Slurm loads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(_version: Annotated[bool, version_option("headway-setup")] = False) -> None:
    """Install the parts of Headway that Slurm loads."""


@app.command()
def slurm(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit status 1 when something is missing.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the changes. Without this option nothing is written.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back what --apply has changed; shown only, without --apply.")
    ] = False,
    slurm_conf: Annotated[Path | None, typer.Option(help="slurm.conf; default: the one that Slurm uses.")] = None,
    runtime_dir: Annotated[
        Path | None,
        typer.Option(help="runtime_dir of the controller; default: that of the installed scripts, else /run/headway."),
    ] = None,
    task_prolog: Annotated[
        Path | None,
        typer.Option(
            help="Also install the TaskProlog hook, at this path, which every compute node must see. With --undo: remove it there, "
            "because no cluster uses it any more."
        ),
    ] = None,
    job_side: Annotated[
        Path | None,
        typer.Option(
            help="Folder with headway_job for PyTorch jobs, as compute nodes see it; default: that of this "
            "installation; without --task-prolog, that of the TaskProlog which is installed."
        ),
    ] = None,
    job_socket: Annotated[
        Path | None,
        typer.Option(
            help="job_socket of the node agents; default: /run/headway-agent/job.sock; without --task-prolog, that of the "
            "TaskProlog which is installed."
        ),
    ] = None,
    slurmctld_gone: Annotated[
        bool,
        typer.Option(
            "--slurmctld-gone",
            help="With --undo: no slurmctld runs with this slurm.conf on any machine, although this cannot be seen from here.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Show as a diff what slurm.conf and its folder lack for Headway; write it with --apply.

    With --undo the other way round: everything that --apply has changed is taken back, and what you have changed since stays. It
    may be run any number of times: what is in place stays as it is. Exit status: 0 nothing is left to do, 1 something is
    missing or needs your decision, 2 the state of the installation cannot be read.
    """
    from controller.base.errors import ConfigurationError

    if check and apply:
        raise typer.BadParameter("choose one", param_hint="--check / --apply")
    if slurmctld_gone and not undo:
        raise typer.BadParameter("belongs to --undo", param_hint="--slurmctld-gone")
    try:
        places = _Places(slurm_conf, runtime_dir, task_prolog, job_side, job_socket, slurmctld_gone)
        raise typer.Exit((_undo if undo else _slurm)(apply, places, as_json))
    except ConfigurationError as error:
        typer.echo(json.dumps({"error": str(error)}) if as_json else f"headway-setup: {error}", err=not as_json)
        raise typer.Exit(2) from error


@app.command()
def spank(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit status 1 when something is missing.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Build and write. Without this option nothing is written.")
    ] = False,
    plugstack: Annotated[
        bool, typer.Option("--plugstack", help="Also add the plugin to plugstack.conf, as optional.")
    ] = False,
    slurm_conf: Annotated[Path | None, typer.Option(help="slurm.conf; default: the one that Slurm uses.")] = None,
    plugin_dir: Annotated[Path | None, typer.Option(help="Folder of Slurm's plugins; default: Slurm's own.")] = None,
    include: Annotated[
        Path | None, typer.Option(help="Folder that has slurm/spank.h below it; default: where packages put it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Build the plugin that gives sbatch, salloc and srun the --headway-... options, for the Slurm of this machine.

    Every machine where jobs are submitted and every compute node needs it. Exit status: 0 nothing is left to do, 1 something is
    missing or needs your decision, 2 the state of the machine cannot be read, or the build failed.
    """
    from controller.base.errors import ConfigurationError

    if check and apply:
        raise typer.BadParameter("choose one", param_hint="--check / --apply")
    try:
        raise typer.Exit(_spank(apply, plugstack, slurm_conf, plugin_dir, include, as_json))
    except ConfigurationError as error:
        typer.echo(json.dumps({"error": str(error)}) if as_json else f"headway-setup: {error}", err=not as_json)
        raise typer.Exit(2) from error


class _Places(NamedTuple):
    """Places from the command line."""

    slurm_conf: Path | None
    runtime_dir: Path | None
    task_prolog: Path | None
    job_side: Path | None
    job_socket: Path | None
    slurmctld_gone: bool


def _slurm(apply: bool, places: _Places, as_json: bool) -> int:
    from controller.slurm.configuration.installed_files import installed_runtime_dir
    from slurm.setup.files import apply_plan, other_clusters, read_installed, script_checks, shipped_sources
    from slurm.setup.plan import make_plan
    from slurm.setup.report import plan_json, plan_text

    conf = _checked_conf(places)
    sources = shipped_sources(places.job_side, places.job_socket)
    runtime_dir = places.runtime_dir or installed_runtime_dir(conf.path.parent, read_installed)
    others = other_clusters(conf)
    plan = make_plan(conf, sources, runtime_dir, read_installed, places.task_prolog, script_checks(), others)
    written = apply_plan(plan) if apply else []
    typer.echo((plan_json if as_json else plan_text)(plan, written, apply))
    return 1 if plan.conflicts or (plan.changes and not apply) else 0


def _undo(apply: bool, places: _Places, as_json: bool) -> int:
    from functools import partial

    from controller.slurm.configuration.installed_files import installed_runtime_dir
    from slurm.setup.files import read_installed
    from slurm.setup.report import undo_json, undo_text
    from slurm.setup.undo_files import apply_undo, inspect_installation, traces
    from slurm.setup.undo_plan import make_undo_plan

    conf = _checked_conf(places)
    runtime_dir = places.runtime_dir or installed_runtime_dir(conf.path.parent, read_installed)
    installed = inspect_installation(conf, runtime_dir, places.task_prolog, slurmctld_gone=places.slurmctld_gone)
    plan = make_undo_plan(installed, read_installed, partial(traces, conf, read_installed))
    written = apply_undo(plan) if apply else []
    typer.echo((undo_json if as_json else undo_text)(plan, written, apply))
    return 1 if plan.conflicts or plan.waiting or not (plan.complete or apply) else 0


def _checked_conf(places: _Places) -> SlurmConf:
    """Return slurm.conf, after a check of the other paths. Raises ConfigurationError."""
    from controller.base.errors import ConfigurationError
    from controller.slurm.configuration import installed_files
    from controller.slurm.configuration.conf import read_slurm_conf
    from slurm.setup.files import default_slurm_conf, require_own

    for name in ("runtime_dir", "task_prolog", "job_side", "job_socket"):
        path: Path | None = getattr(places, name)
        if path is not None and not installed_files.is_plain(path):
            option = f"--{name.replace('_', '-')}"
            raise ConfigurationError(
                f"{option} {path}: give an absolute path of letters, digits and . _ - + @ , = only"
            )
    path = (places.slurm_conf or default_slurm_conf()).absolute()
    require_own(path)
    return read_slurm_conf(path)


def _spank(
    apply: bool,
    with_line: bool,
    slurm_conf: Path | None,
    plugin_dir: Path | None,
    include: Path | None,
    as_json: bool,
) -> int:
    from controller.base.errors import ConfigurationError
    from controller.slurm.configuration import installed_files
    from controller.slurm.configuration.conf import read_slurm_conf
    from slurm.setup.files import (
        apply_spank_plan,
        default_slurm_conf,
        included_files,
        inspect_machine,
        read_installed,
    )
    from slurm.setup.report import spank_json, spank_text
    from slurm.setup.spank_plan import make_spank_plan

    if plugin_dir is not None and not installed_files.is_plain(plugin_dir):
        raise ConfigurationError(
            f"--plugin-dir {plugin_dir}: give an absolute path of letters, digits and . _ - + @ , = only"
        )
    conf = read_slurm_conf((slurm_conf or default_slurm_conf()).absolute())
    machine = inspect_machine(conf, plugin_dir, include)
    plan = make_spank_plan(machine, read_installed, included_files, with_line=with_line)
    written = apply_spank_plan(plan) if apply else []
    typer.echo((spank_json if as_json else spank_text)(plan, written, apply))
    return 1 if plan.conflicts or (plan.changes and not apply) else 0


def main() -> None:
    """Entry point."""
    app()
