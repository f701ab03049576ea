"""The plan of `headway-setup slurm`: pure functions from the files that exist to the files that Headway needs.

A setting or script of the site is never removed or overwritten. Where Slurm accepts only one program and the site has its own,
the plan holds a conflict with an explanation instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.slurm.configuration import installed_files, site_lua
from controller.slurm.configuration.conf import SlurmConf, list_items, physical_lines
from controller.slurm.configuration.editing import block_of, has_heading, with_item, with_value
from slurm.setup.record import Edit, Record, parse_record, record_path, record_text

RESTART = "systemctl restart slurmctld   (it reads PrologSlurmctld and EpilogSlurmctld only when it starts; running jobs continue)"
RECONFIGURE = "scontrol reconfigure"
DISTRIBUTE = "copy slurm.conf to every machine that has its own copy (configless Slurm does this itself)"
TASK_PROLOG_LEFT_OUT = (
    "TaskProlog stays as it is: a job fails on a node that lacks the file, so the file must be on all nodes first. It is needed "
    "only where node agents measure jobs, for --gpus jobs with fewer tasks than nodes (such as --gpus=12 --ntasks-per-node=1), and "
    "for jobs that run again with another number of GPUs. To install it, "
    "name a path that every compute node sees: --task-prolog /shared/headway/task_prolog.sh"
)

NOT_RUNNING = (
    "\nSlurm does not run {own} at present: JobSubmitPlugins lacks lua, and stays as it is, because slurmctld would not start "
    "with a script that has a fault. If you do not need the script, move it away; otherwise see to it that it works, and do as "
    "said above. Then run this command again: it adds lua."
)

LUA_PLUGIN = "lua"
"""The item of JobSubmitPlugins that Headway needs."""
NO_DELAY = "batch_sched_delay=0"
"""The item of SchedulerParameters that Headway needs."""

ReadFile = Callable[[Path], str | None]
"""Returns the text of a file, None when it does not exist."""


@dataclass(frozen=True, slots=True)
class ScriptChecks:
    """Requirements of Slurm on scripts: slurmctld does not start with a Lua script that fails one, jobs fail with such a hook."""

    error: Callable[[str], str | None] = lambda _text: None
    """Returns why a Lua text cannot be parsed; None when it can be, or when that cannot be checked."""
    readable: Callable[[Path, str], bool] = lambda _path, _user: True
    """Returns whether that user can read an existing file; True when that cannot be checked."""
    runnable: Callable[[Path, str | None], bool] = lambda _path, _user: True
    """Returns whether that user (None: any user) can run an existing script; True when that cannot be checked."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file to write. `before` is None for a new one."""

    path: Path
    before: str | None
    after: str
    mode: int
    """Permissions of a new file; an existing one keeps its own."""
    copied: bool = True
    """True when the old file is copied first."""

    @property
    def diff(self) -> str:
        """The change in the form of `diff -u`."""
        return "".join(
            difflib.unified_diff(
                _diff_lines(self.before or ""),
                _diff_lines(self.after),
                str(self.path) if self.before is not None else "/dev/null",
                str(self.path),
            )
        )


def _diff_lines(text: str) -> list[str]:
    lines = physical_lines(text)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


@dataclass(frozen=True, slots=True)
class Conflict:
    """A decision that the operator has to make: the text says what the case is, and what to do."""

    key: str
    text: str


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


@dataclass(slots=True)
class _Draft:
    conf: SlurmConf
    changes: list[FileChange] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    touched: list[Path] = field(default_factory=list)

    def set(self, key: str, value: str) -> None:
        """Set a value, and remember the lines before and after."""
        old, self.conf = self.conf, with_value(self.conf, key, value)
        before, after = old.find(key), self.conf.find(key)
        if after is not None and self.conf is not old:
            self.edits.append(Edit(key, block_of(old, before) if before else None, block_of(self.conf, after)))


def make_plan(
    conf: SlurmConf,
    sources: Sources,
    runtime_dir: Path,
    read: ReadFile,
    task_prolog: Path | None = None,
    checks: ScriptChecks | None = None,
) -> SetupPlan:
    """Return the changes with which Slurm works with Headway. `read` is called for each file that might be written.

    `task_prolog` is the path at which compute nodes find that hook; None leaves TaskProlog as it is. `checks` of the Lua scripts
    that are there; None makes none.
    """
    draft = _Draft(conf)
    folder = conf.path.parent
    _plan_lua(draft, sources.lua, folder, runtime_dir, read)
    event_hook = folder / installed_files.HOOKS_FOLDER / installed_files.EVENT_HOOK
    _plan_file(draft, event_hook, sources.event_hook, 0o755, runtime_dir, read)
    for key in installed_files.EVENT_KEYS:
        _plan_hook(draft, key, event_hook, read)
    if task_prolog is not None:
        _plan_file(draft, task_prolog, sources.task_prolog, 0o755, runtime_dir, read)
        _plan_hook(draft, "TaskProlog", task_prolog, read)
    elif not draft.conf.value("TaskProlog"):
        draft.notes.append(TASK_PROLOG_LEFT_OUT)
    installed = _update_task_prolog(draft, sources, task_prolog, read)
    _plan_scheduler_parameters(draft)
    if checks is not None:
        _check_lua(draft, folder, read, checks)
        _check_hooks(draft, event_hook, [path for path in (task_prolog, installed) if path], checks)
    return SetupPlan(
        changes=(*draft.changes, *_record(conf, draft, read), *changed_texts(conf, draft.conf)),
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


def _record(conf: SlurmConf, draft: _Draft, read: ReadFile) -> Iterator[FileChange]:
    """Yield the change of the record; none when nothing else is written."""
    if not draft.changes and not draft.edits:
        return
    path = record_path(conf.path)
    there = read(path)
    record = parse_record(path, there) or Record(complete=not _is_installed(conf, draft, read))
    text = conf.texts[conf.path]
    if text and not text.endswith("\n") and any(edit.before is None for edit in draft.edits):
        record = replace(record, newline_added=True)
    record = record.with_edits(draft.edits).with_files([change.path for change in draft.changes])
    if there != record_text(record):
        yield FileChange(path, there, record_text(record), 0o644, copied=False)


def _is_installed(conf: SlurmConf, draft: _Draft, read: ReadFile) -> bool:
    """Return whether parts of Headway are there already: its heading, its scripts, or settings that run them."""
    folder = conf.path.parent
    hooks = {key.lower() for key in (*installed_files.EVENT_KEYS, "TaskProlog")}
    paths = [folder / installed_files.LUA_NAME, folder / installed_files.CHAINED_LUA_NAME]
    paths += [change.path for change in draft.changes]
    paths += [Path(setting.value) for setting in conf.settings if setting.key.lower() in hooks]
    return any(has_heading(text) for text in conf.texts.values()) or any(
        _version_at(path, read) is not None for path in paths
    )


def _version_at(path: Path, read: ReadFile) -> int | None:
    """Return the version of a script of Headway's; None for any other file, also for one that cannot be read."""
    try:
        return installed_files.script_version(read(path) or "")
    except ConfigurationError:
        return None


def _plan_lua(draft: _Draft, source: str, folder: Path, runtime_dir: Path, read: ReadFile) -> None:
    plugins = [item.removeprefix("job_submit/") for item in list_items(draft.conf.value("JobSubmitPlugins"))]
    own, chained = folder / installed_files.LUA_NAME, folder / installed_files.CHAINED_LUA_NAME
    there = read(own)
    is_own = there is not None and installed_files.script_version(there) is None
    problem = _loading_problem(there, own, chained) if there is not None and is_own else None
    # A script of the site that does not run may never have worked: it is not switched on without Headway's.
    if LUA_PLUGIN not in plugins and problem is None:
        draft.set("JobSubmitPlugins", with_item(draft.conf.value("JobSubmitPlugins"), LUA_PLUGIN))
    if there is None or not is_own:
        _plan_file(draft, own, source, 0o644, runtime_dir, read)
        return
    _plan_file(draft, chained, source, 0o644, runtime_dir, read)
    if site_lua.loads_ours(there) and any(change.path == chained for change in draft.changes):
        draft.touched.append(own)
        draft.notes.append(
            f"{own} gets a new time of change, and its content stays: slurmctld looks only at this time, and loads {chained} again "
            "together with it"
        )
    if problem is not None:
        off = "" if LUA_PLUGIN in plugins else NOT_RUNNING.format(own=own)
        draft.conflicts.append(Conflict("JobSubmitPlugins", problem + off))


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


def _check_lua(draft: _Draft, folder: Path, read: ReadFile, checks: ScriptChecks) -> None:
    """Add a conflict for each existing script that slurmctld could not load. A file that is replaced keeps its permissions."""
    user = draft.conf.value("SlurmUser") or "root"
    for path in (folder / installed_files.LUA_NAME, folder / installed_files.CHAINED_LUA_NAME):
        there = read(path)
        if there is None:
            continue
        replaced = any(change.path == path for change in draft.changes)
        error = None if replaced else checks.error(there)
        if error:
            draft.conflicts.append(
                Conflict(
                    path.name, f"{path} is not valid Lua ({error}); slurmctld would not start again with it: correct it"
                )
            )
        if not checks.readable(path, user):
            draft.conflicts.append(
                Conflict(
                    path.name,
                    f"{path} cannot be read by {user}, the user of slurmctld, which would not start again: chmod o+r {path}, and "
                    "chmod o+x the folders above it",
                )
            )


def _check_hooks(draft: _Draft, event_hook: Path, task_prologs: list[Path], checks: ScriptChecks) -> None:
    """Add a conflict for each existing hook that cannot be run by the user as whom Slurm runs it."""
    slurm_user = draft.conf.value("SlurmUser") or "root"
    who = f"{slurm_user}, the user of slurmctld, which requeues all batch jobs then"
    runs: list[tuple[str, Path, str | None, str]] = [(installed_files.EVENT_KEYS[0], event_hook, slurm_user, who)]
    runs += [("TaskProlog", path, None, "every user, so that jobs fail") for path in task_prologs]
    for key, path, user, of_whom in runs:
        if not checks.runnable(path, user):
            mend = f"chmod a+rx {path}, and chmod a+x the folders above it"
            draft.conflicts.append(Conflict(key, f"{path} cannot be run by {of_whom}: {mend}"))


def _update_task_prolog(draft: _Draft, sources: Sources, named: Path | None, read: ReadFile) -> Path | None:
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


def _plan_hook(draft: _Draft, key: str, ours: Path, read: ReadFile) -> None:
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


def _plan_scheduler_parameters(draft: _Draft) -> None:
    value = draft.conf.value("SchedulerParameters")
    set_to = [item for item in list_items(value) if item.startswith("batch_sched_delay=")]
    if not set_to:
        draft.set("SchedulerParameters", with_item(value, NO_DELAY))
    elif set_to != [NO_DELAY]:
        draft.notes.append(
            f"SchedulerParameters has {set_to[0]}, which stays. With batch_sched_delay=0 a placed job starts within 0.2 s; with "
            "Slurm's default of 3 it takes up to 3 s."
        )


def _plan_file(draft: _Draft, path: Path, source: str, mode: int, runtime_dir: Path, read: ReadFile) -> None:
    wanted = installed_files.with_runtime_dir(source, runtime_dir)
    there = read(path)
    if there != wanted:
        draft.changes.append(FileChange(path, there, wanted, mode))


def _copies(conf: SlurmConf, draft: _Draft) -> Iterator[str]:
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
