"""headway-setup: show as a diff what a Slurm installation lacks for Headway, and install it with --apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from slurm.setup.files import Written
    from slurm.setup.plan import FileChange, SetupPlan
    from slurm.setup.spank_plan import SpankPlan

app = typer.Typer(
    help="Install the parts of Headway that Slurm loads.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Install the parts of Headway that Slurm loads."""


@app.command()
def slurm(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit status 1 when something is missing.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the changes. Without this option nothing is written.")
    ] = False,
    slurm_conf: Annotated[Path | None, typer.Option(help="slurm.conf; default: the one that Slurm uses.")] = None,
    runtime_dir: Annotated[Path, typer.Option(help="runtime_dir of the controller.")] = Path("/run/headway"),
    task_prolog: Annotated[
        Path | None,
        typer.Option(help="Also install the TaskProlog hook, at this path, which every compute node must see."),
    ] = None,
    job_side: Annotated[
        Path | None,
        typer.Option(
            help="Folder with headway_job for PyTorch jobs, as compute nodes see it; default: that of this installation."
        ),
    ] = None,
    job_socket: Annotated[Path, typer.Option(help="job_socket of the node agents.")] = Path(
        "/run/headway-agent/job.sock"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Show as a diff what slurm.conf and its folder lack for Headway; write it with --apply.

    It may be run any number of times: what is in place stays as it is. Exit status: 0 nothing is left to do, 1 something is
    missing or needs your decision, 2 the state of the installation cannot be read.
    """
    from controller.base.errors import ConfigurationError

    if check and apply:
        raise typer.BadParameter("choose one", param_hint="--check / --apply")
    try:
        places = _Places(slurm_conf, runtime_dir, task_prolog, job_side, job_socket)
        raise typer.Exit(_slurm(apply, places, as_json))
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
    """Paths from the command line."""

    slurm_conf: Path | None
    runtime_dir: Path
    task_prolog: Path | None
    job_side: Path | None
    job_socket: Path


def _slurm(apply: bool, places: _Places, as_json: bool) -> int:
    from controller.base.errors import ConfigurationError
    from controller.slurm.configuration import installed_files
    from controller.slurm.configuration.conf import read_slurm_conf
    from slurm.setup.files import apply_plan, default_slurm_conf, read_installed, script_checks, shipped_sources
    from slurm.setup.plan import make_plan

    for name in ("runtime_dir", "task_prolog", "job_side", "job_socket"):
        path: Path | None = getattr(places, name)
        if path is not None and not installed_files.is_plain(path):
            option = f"--{name.replace('_', '-')}"
            raise ConfigurationError(
                f"{option} {path}: give an absolute path of letters, digits and . _ - + @ , = only"
            )
    conf = read_slurm_conf((places.slurm_conf or default_slurm_conf()).absolute())
    sources = shipped_sources(places.job_side, places.job_socket)
    plan = make_plan(conf, sources, places.runtime_dir, read_installed, places.task_prolog, script_checks())
    written = apply_plan(plan) if apply else []
    typer.echo(_json(plan, written, apply) if as_json else _text(plan, written, apply))
    return 1 if plan.conflicts or (plan.changes and not apply) else 0


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
    from slurm.setup.spank_plan import make_spank_plan

    if plugin_dir is not None and not installed_files.is_plain(plugin_dir):
        raise ConfigurationError(
            f"--plugin-dir {plugin_dir}: give an absolute path of letters, digits and . _ - + @ , = only"
        )
    conf = read_slurm_conf((slurm_conf or default_slurm_conf()).absolute())
    machine = inspect_machine(conf, plugin_dir, include)
    plan = make_spank_plan(machine, read_installed, included_files, with_line=with_line)
    written = apply_spank_plan(plan) if apply else []
    typer.echo(_spank_json(plan, written, apply) if as_json else _spank_text(plan, written, apply))
    return 1 if plan.conflicts or (plan.changes and not apply) else 0


def _json(plan: SetupPlan, written: list[Written], applied: bool) -> str:
    document = {
        "complete": plan.complete,
        "applied": applied,
        "changes": _change_rows(plan.changes, written),
        "conflicts": [{"key": conflict.key, "text": conflict.text} for conflict in plan.conflicts],
        "notes": list(plan.notes),
        "next_steps": list(plan.next_steps),
    }
    return json.dumps(document, indent=2)


def _spank_json(plan: SpankPlan, written: list[Written], applied: bool) -> str:
    build = plan.build
    document = {
        "complete": plan.complete,
        "applied": applied,
        "plugin": str(plan.plugin),
        "build": build
        and {"compiler": " ".join(build.compiler), "include": str(build.include), "slurm": build.release},
        "changes": _change_rows((plan.plugstack,) if plan.plugstack else (), written),
        "conflicts": [{"key": conflict.key, "text": conflict.text} for conflict in plan.conflicts],
        "notes": list(plan.notes),
        "next_steps": list(plan.next_steps),
    }
    return json.dumps(document, indent=2)


def _change_rows(changes: tuple[FileChange, ...], written: list[Written]) -> list[dict[str, object]]:
    backups = {item.path: item.backup for item in written}
    return [
        {
            "path": str(change.path),
            "new": change.before is None,
            "diff": change.diff,
            "backup": str(backups[change.path]) if backups.get(change.path) else None,
        }
        for change in changes
    ]


def _text(plan: SetupPlan, written: list[Written], applied: bool) -> str:
    blocks = [change.diff if change.before is not None else f"new file: {change.path}\n" for change in plan.changes]
    return _report(blocks, plan, bool(plan.changes), written, applied)


def _spank_text(plan: SpankPlan, written: list[Written], applied: bool) -> str:
    blocks = []
    if build := plan.build:
        compiler = " ".join(build.compiler)
        blocks.append(
            f"to build: {plan.plugin}, with {compiler} and the headers of Slurm {build.release} in {build.include}\n"
        )
    if plan.plugstack:
        blocks.append(plan.plugstack.diff)
    return _report(blocks, plan, plan.changes, written, applied)


def _report(
    blocks: list[str], plan: SetupPlan | SpankPlan, changes: bool, written: list[Written], applied: bool
) -> str:
    """Text of a plan: its changes, conflicts, notes and next steps."""
    blocks = [*blocks]
    blocks += [f"needs your decision: {conflict.key}: {conflict.text}\n" for conflict in plan.conflicts]
    blocks += [f"note: {note}\n" for note in plan.notes]
    if applied:
        blocks += [
            f"written: {item.path}" + (f" (copy of the old file: {item.backup})\n" if item.backup else "\n")
            for item in written
        ]
    if changes and plan.next_steps:
        heading = "now:" if applied else "after --apply:"
        blocks.append("\n".join([heading, *(f"  {n}. {step}" for n, step in enumerate(plan.next_steps, 1))]) + "\n")
    if plan.complete:
        blocks.append("everything is in place\n")
    elif changes and not applied:
        blocks.append("nothing was written; use --apply to write the changes\n")
    return "\n".join(block.rstrip("\n") for block in blocks)


def main() -> None:
    """Entry point."""
    app()
