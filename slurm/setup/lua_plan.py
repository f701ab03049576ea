"""The part of the plan about job_submit.lua: Headway's script, beside the site's own where there is one. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from controller.slurm.configuration import installed_files, site_lua
from controller.slurm.configuration.conf import list_items
from controller.slurm.configuration.editing import with_item
from slurm.setup.draft import Conflict, Draft, ReadFile, ScriptChecks, plan_file

NOT_RUNNING = (
    "\nSlurm does not run {own} at present: JobSubmitPlugins lacks lua, and stays as it is, because slurmctld would not start "
    "with a script that has a fault. If you do not need the script, move it away; otherwise see to it that it works, and do as "
    "said above. Then run this command again: it adds lua."
)

LUA_PLUGIN = "lua"
"""The item of JobSubmitPlugins that Headway needs."""


def plan_lua(draft: Draft, source: str, folder: Path, runtime_dir: Path, read: ReadFile, checks: ScriptChecks) -> None:
    """Install Headway's script, and let slurmctld run it: not where the site's own does not run yet and may have a fault.

    slurmctld does not start with a script that it cannot load.
    """
    plugins = [item.removeprefix("job_submit/") for item in list_items(draft.conf.value("JobSubmitPlugins"))]
    own, chained = folder / installed_files.LUA_NAME, folder / installed_files.CHAINED_LUA_NAME
    there = read(own)
    of_site = there if there is not None and installed_files.script_version(there) is None else None
    plan_file(draft, own if of_site is None else chained, source, 0o644, runtime_dir, read)
    if of_site is not None and site_lua.loads_ours(of_site) and any(change.path == chained for change in draft.changes):
        draft.touched.append(own)
        draft.notes.append(
            f"{own} gets a new time of change, and its content stays: slurmctld looks only at this time, and loads {chained} again "
            "together with it"
        )
    problem = _loading_problem(of_site, own, chained) if of_site is not None else None
    problems = [Conflict("JobSubmitPlugins", problem)] if problem else []
    problems += _faults(draft, [own] if of_site is None else [own, chained], read, checks)
    if LUA_PLUGIN not in plugins and problems:
        problems[-1] = replace(problems[-1], text=problems[-1].text + NOT_RUNNING.format(own=own))
    elif LUA_PLUGIN not in plugins:
        draft.set("JobSubmitPlugins", with_item(draft.conf.value("JobSubmitPlugins"), LUA_PLUGIN))
    draft.conflicts += problems


def _loading_problem(there: str, own: Path, chained: Path) -> str | None:
    """Return what the operator has to do so that the site's script runs Headway's; None where it does."""
    if not site_lua.loads_ours(there):
        return (
            f"{own} is your own script and stays as it is. Headway's script is installed beside it, as {chained}. To run both, add "
            f'this to your script {site_lua.PLACE}: dofile("{chained}")\n'
            "Your functions run first, and what they refuse stays refused."
        )
    if problem := site_lua.misplaced(there):
        return f"{own}: {problem}. Move that line: your script needs it {site_lua.PLACE}"
    return None


def _faults(draft: Draft, paths: list[Path], read: ReadFile, checks: ScriptChecks) -> Iterator[Conflict]:
    """Yield a conflict for each existing script that slurmctld could not load. A file that is replaced keeps its permissions."""
    user = draft.conf.value("SlurmUser") or "root"
    for path in paths:
        there = read(path)
        if there is None:
            continue
        replaced = any(change.path == path for change in draft.changes)
        error = None if replaced else checks.error(there)
        if error:
            text = f"{path} is not valid Lua ({error}); slurmctld would not start again with it: correct it"
            yield Conflict(path.name, text)
        if not checks.readable(path, user):
            yield Conflict(
                path.name,
                f"{path} cannot be read by {user}, the user of slurmctld, which would not start again: chmod o+r {path}, and "
                "chmod o+x the folders above it",
            )
