"""The plan of `headway-setup slurm`: pure functions from the files that exist to the files that Headway needs.

A setting or script of the site is never removed or overwritten. Where Slurm accepts only one program and the site has its own,
the plan holds a conflict with an explanation instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf, list_items
from controller.slurm.configuration.editing import has_heading, with_item
from slurm.setup.draft import Conflict, Draft, FileChange, ReadFile, ScriptChecks, plan_file
from slurm.setup.lua_plan import plan_lua
from slurm.setup.record import Record, parse_record, record_path, record_text
from slurm.setup.sharing import require_same_runtime_dir, user_of

RESTART = "systemctl restart slurmctld   (it reads PrologSlurmctld and EpilogSlurmctld only when it starts; running jobs continue)"
RECONFIGURE = "scontrol reconfigure"
DISTRIBUTE = "copy slurm.conf to every machine that has its own copy (configless Slurm does this itself)"
TASK_PROLOG_LEFT_OUT = (
    "TaskProlog stays as it is: a job fails on a node that lacks the file, so the file must be on all nodes first. It is needed "
    "only where node agents measure jobs, for --gpus jobs with fewer tasks than nodes (such as --gpus=12 --ntasks-per-node=1), and "
    "for jobs that run again with another number of GPUs. To install it, "
    "name a path that every compute node sees: --task-prolog /shared/headway/task_prolog.sh"
)

NO_DELAY = "batch_sched_delay=0"
"""The item of SchedulerParameters that Headway needs."""


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """Everything that an installation lacks."""

    changes: tuple[FileChange, ...]
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]
    next_steps: tuple[str, ...]
    touched: tuple[Path, ...] = ()
    """Scripts of the site that get a new time of change after everything is written. Their content stays."""

    @property
    def complete(self) -> bool:
        """True when nothing is missing."""
        return not self.changes and not self.conflicts


@dataclass(frozen=True, slots=True)
class Sources:
    """Texts of the shipped scripts."""

    lua: str
    event_hook: str
    task_prolog: str
    job_side: Path | None = None
    """Folder in the TaskProlog, if the operator has named it; an installed TaskProlog keeps its own otherwise."""
    job_socket: Path | None = None
    """Socket in the TaskProlog, in the same way."""


def make_plan(
    conf: SlurmConf,
    sources: Sources,
    runtime_dir: Path,
    read: ReadFile,
    task_prolog: Path | None = None,
    checks: ScriptChecks | None = None,
    others: Sequence[SlurmConf] = (),
) -> SetupPlan:
    """Return the changes with which Slurm works with Headway. `read` is called for each file that might be written.

    `task_prolog` is the path at which compute nodes find that hook; None leaves TaskProlog as it is. `checks` of the scripts that
    are there; None makes none. `others` are the slurm.conf of other clusters in the same folder. Raises ConfigurationError when
    such a cluster needs a script with another runtime_dir.
    """
    draft, checks = Draft(conf), checks or ScriptChecks()
    folder = conf.path.parent
    require_same_runtime_dir(folder, runtime_dir, others, read)
    plan_lua(draft, sources.lua, folder, runtime_dir, read, checks)
    event_hook = folder / installed_files.HOOKS_FOLDER / installed_files.EVENT_HOOK
    plan_file(draft, event_hook, sources.event_hook, 0o755, runtime_dir, read)
    for key in installed_files.EVENT_KEYS:
        _plan_hook(draft, key, event_hook, read)
    if task_prolog is not None:
        plan_file(draft, task_prolog, sources.task_prolog, 0o755, runtime_dir, read)
        _plan_hook(draft, "TaskProlog", task_prolog, read)
    elif not draft.conf.value("TaskProlog"):
        draft.notes.append(TASK_PROLOG_LEFT_OUT)
    installed = _update_task_prolog(draft, sources, task_prolog, read)
    _plan_scheduler_parameters(draft)
    _check_hooks(draft, event_hook, [path for path in (task_prolog, installed) if path], checks)
    return SetupPlan(
        changes=(*draft.changes, *_record(conf, draft, read, others), *changed_texts(conf, draft.conf)),
        conflicts=tuple(draft.conflicts),
        notes=tuple(draft.notes),
        next_steps=(*_copies(conf, draft), *_next_steps(conf, draft.conf)),
        touched=tuple(draft.touched),
    )


def changed_texts(before: SlurmConf, after: SlurmConf) -> list[FileChange]:
    """Return the files of a configuration whose texts differ."""
    return [
        FileChange(path, text, after.texts[path], 0o644)
        for path, text in before.texts.items()
        if after.texts[path] != text
    ]


def _record(conf: SlurmConf, draft: Draft, read: ReadFile, others: Sequence[SlurmConf]) -> Iterator[FileChange]:
    """Yield the change of the record; none when nothing else is written."""
    if not draft.changes and not draft.edits:
        return
    path = record_path(conf.path, read)
    there = read(path)
    record = parse_record(path, there) or Record(complete=not _is_installed(conf, draft, read, others))
    text = conf.texts[conf.path]
    if text and not text.endswith("\n") and any(edit.before is None for edit in draft.edits):
        record = replace(record, newline_added=True)
    record = record.with_edits(draft.edits).with_files([change.path for change in draft.changes])
    if there != record_text(record):
        yield FileChange(path, there, record_text(record), 0o644, copied=False)


def _is_installed(conf: SlurmConf, draft: Draft, read: ReadFile, others: Sequence[SlurmConf]) -> bool:
    """Return whether parts of Headway are there already: its heading, its scripts, or settings that run them.

    Scripts of another cluster in the same folder are no part of this installation.
    """
    folder = conf.path.parent
    hooks = {key.lower() for key in (*installed_files.EVENT_KEYS, "TaskProlog")}
    paths = [folder / installed_files.LUA_NAME, folder / installed_files.CHAINED_LUA_NAME]
    if user_of(paths[0], "JobSubmitPlugins", others, read) is not None:
        paths = []
    paths += [
        change.path for change in draft.changes if user_of(change.path, _key_of(change.path), others, read) is None
    ]
    paths += [Path(setting.value) for setting in conf.settings if setting.key.lower() in hooks]
    return any(has_heading(text) for text in conf.texts.values()) or any(
        _version_at(path, read) is not None for path in paths
    )


def _key_of(path: Path) -> str:
    """Return the key of slurm.conf through which Slurm runs a script of Headway."""
    if path.name in {installed_files.LUA_NAME, installed_files.CHAINED_LUA_NAME}:
        return "JobSubmitPlugins"
    return installed_files.EVENT_KEYS[0] if path.name == installed_files.EVENT_HOOK else "TaskProlog"


def _version_at(path: Path, read: ReadFile) -> int | None:
    """Return the version of a script of Headway's; None for any other file, also for one that cannot be read."""
    try:
        return installed_files.script_version(read(path) or "")
    except ConfigurationError:
        return None


def _check_hooks(draft: Draft, event_hook: Path, task_prologs: list[Path], checks: ScriptChecks) -> None:
    """Add a conflict for each existing hook that cannot be run by the user as whom Slurm runs it."""
    slurm_user = draft.conf.value("SlurmUser") or "root"
    who = f"{slurm_user}, the user of slurmctld, which requeues all batch jobs then"
    runs: list[tuple[str, Path, str | None, str]] = [(installed_files.EVENT_KEYS[0], event_hook, slurm_user, who)]
    runs += [("TaskProlog", path, None, "every user, so that jobs fail") for path in task_prologs]
    for key, path, user, of_whom in runs:
        if not checks.runnable(path, user):
            mend = f"chmod a+rx {path}, and chmod a+x the folders above it"
            draft.conflicts.append(Conflict(key, f"{path} cannot be run by {of_whom}: {mend}"))


def _update_task_prolog(draft: Draft, sources: Sources, named: Path | None, read: ReadFile) -> Path | None:
    """Bring Headway's TaskProlog that slurm.conf names up to date in its place, with the folder and the socket that it has.

    Return its path; None where slurm.conf names none, one of the site, or the one that the operator has named.
    """
    path = Path(draft.conf.value("TaskProlog"))
    if path in {Path(), named}:
        return None
    try:
        there = read(path) or ""
    except ConfigurationError as error:  # on a file system of the nodes, which root may not read from here
        draft.notes.append(f"TaskProlog was not checked: {error}")
        return None
    if installed_files.script_version(there) is None:
        return None
    side = sources.job_side or installed_files.job_side_of(there)
    socket = sources.job_socket or installed_files.job_socket_of(there)
    text = installed_files.with_job_side(sources.task_prolog, side, socket)
    if there != text:
        draft.changes.append(FileChange(path, there, text, 0o755))
    return path


def _plan_hook(draft: Draft, key: str, ours: Path, read: ReadFile) -> None:
    there = draft.conf.value(key)
    if there == "":
        draft.set(key, str(ours))
    elif not calls(there, ours, read):
        draft.conflicts.append(Conflict(key, _call_from_theirs(key, there, ours)))


def calls(program: str, ours: Path, read: ReadFile) -> bool:
    """Return whether the configured program is the hook of Headway, or a script that names it."""
    if program == str(ours):
        return True
    text = read(Path(program)) or ""
    return installed_files.script_version(text) is not None or installed_files.calls_ours(text, str(ours))


def _call_from_theirs(key: str, theirs: str, ours: Path) -> str:
    if key == "TaskProlog":
        why = (
            "The hook lets PyTorch jobs report their training to the agent of the node, and corrects the number of tasks that srun "
            "reads, for jobs on more nodes than tasks."
        )
    else:
        why = "The hook reports the start and the end of a job to Headway at once; without it Headway sees them at its next poll."
    return (
        f"{key} is already set to {theirs}, which stays, because Slurm runs only one program. To run Headway's hook too, add this "
        f"line to that script: {ours}\n"
        f"(Its output must reach the standard output of your script. It never fails and never waits.) {why}"
    )


def _plan_scheduler_parameters(draft: Draft) -> None:
    value = draft.conf.value("SchedulerParameters")
    set_to = [item for item in list_items(value) if item.startswith("batch_sched_delay=")]
    if not set_to:
        draft.set("SchedulerParameters", with_item(value, NO_DELAY))
    elif set_to != [NO_DELAY]:
        draft.notes.append(
            f"SchedulerParameters has {set_to[0]}, which stays. With batch_sched_delay=0 a placed job starts within 0.2 s; with "
            "Slurm's default of 3 it takes up to 3 s."
        )


def _copies(conf: SlurmConf, draft: Draft) -> Iterator[str]:
    """Name the machines that need copies: the scripts run with slurmctld, and a slurmctld without job_submit.lua does not start."""
    machines = [setting.value for setting in conf.settings if setting.key.lower() == "slurmctldhost"]
    if draft.changes and len(machines) > 1:
        files = ", ".join(str(change.path) for change in draft.changes)
        touch = "".join(f"; then there: touch {path}" for path in draft.touched)
        yield f"copy to every machine that slurmctld may run on ({', '.join(machines)}): {files}{touch}"
    path = draft.conf.value("TaskProlog")
    if any(change.before is not None and str(change.path) == path for change in draft.changes):
        yield f"copy {path} to every compute node that has its own copy of it"


def _next_steps(before: SlurmConf, after: SlurmConf) -> Iterator[str]:
    changed = {setting.key for setting in after.settings if before.value(setting.key) != after.value(setting.key)}
    if not changed:
        return
    yield DISTRIBUTE
    if "TaskProlog" in changed:
        yield f"check that {after.value('TaskProlog')} is executable on every compute node: a job fails on a node that lacks it"
    restart = bool(changed & set(installed_files.EVENT_KEYS))
    if restart:
        yield RESTART
    if not restart or "TaskProlog" in changed:
        yield RECONFIGURE
