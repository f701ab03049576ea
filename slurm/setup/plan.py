"""What `headway-setup slurm` would change: pure functions from the files that are there to the files that should be.

Nothing of anybody else's is ever taken out or written over; where Slurm has room for one thing only and a site's own stands
there, the plan holds an explanation in its place.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf, list_items, with_item, with_value

RESTART = "systemctl restart slurmctld   (it reads PrologSlurmctld and EpilogSlurmctld at its start only; jobs run on)"
RECONFIGURE = "scontrol reconfigure"
DISTRIBUTE = "copy slurm.conf to every machine that has one of its own (configless Slurm does that itself)"
TASK_PROLOG_LEFT_OUT = (
    "TaskProlog is left alone: a job whose node lacks the file fails, so it must be everywhere first. It is only needed where "
    "node agents measure jobs, for --gpus jobs with fewer tasks than nodes, such as --gpus=12 --ntasks-per-node=1, and for jobs "
    "that run again with another number of GPUs. To have it, "
    "name a path that every compute node sees: --task-prolog /shared/headway/task_prolog.sh"
)

ReadFile = Callable[[Path], str | None]
"""Text of a file, None when there is none."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file to write. `before` is None for a new one."""

    path: Path
    before: str | None
    after: str
    mode: int
    """Permissions of a new file; one that is there keeps its own."""

    @property
    def diff(self) -> str:
        """As `diff -u` prints it."""
        return "".join(
            difflib.unified_diff(
                (self.before or "").splitlines(keepends=True),
                self.after.splitlines(keepends=True),
                str(self.path) if self.before is not None else "/dev/null",
                str(self.path),
            )
        )


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something that only a human can decide: what stands there, and what to do."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """Everything that is missing."""

    changes: tuple[FileChange, ...]
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]
    next_steps: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return not self.changes and not self.conflicts


@dataclass(frozen=True, slots=True)
class Sources:
    """Our files as shipped."""

    lua: str
    event_hook: str
    task_prolog: str


@dataclass(slots=True)
class _Draft:
    conf: SlurmConf
    changes: list[FileChange] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_plan(
    conf: SlurmConf, sources: Sources, runtime_dir: Path, read: ReadFile, task_prolog: Path | None = None
) -> SetupPlan:
    """What to write so that Slurm works with Headway. `read` is asked for the files that would be written.

    `task_prolog` is where compute nodes find that hook; without it TaskProlog stays as it is.
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
    _plan_scheduler_parameters(draft)
    edited = [
        FileChange(path, text, draft.conf.texts[path], 0o644)
        for path, text in conf.texts.items()
        if draft.conf.texts[path] != text
    ]
    return SetupPlan(
        changes=(*draft.changes, *edited),
        conflicts=tuple(draft.conflicts),
        notes=tuple(draft.notes),
        next_steps=(*_copies(conf, draft.changes), *_next_steps(conf, draft.conf)),
    )


def _plan_lua(draft: _Draft, source: str, folder: Path, runtime_dir: Path, read: ReadFile) -> None:
    plugins = [item.removeprefix("job_submit/") for item in list_items(draft.conf.value("JobSubmitPlugins"))]
    if "lua" not in plugins:
        draft.conf = with_value(draft.conf, "JobSubmitPlugins", with_item(draft.conf.value("JobSubmitPlugins"), "lua"))
    own = folder / installed_files.LUA_NAME
    there = read(own)
    if there is None or installed_files.script_version(there) is not None:
        _plan_file(draft, own, source, 0o644, runtime_dir, read)
        return
    chained = folder / installed_files.CHAINED_LUA_NAME
    _plan_file(draft, chained, source, 0o644, runtime_dir, read)
    if not installed_files.loads_ours(there):
        draft.conflicts.append(
            Conflict(
                "JobSubmitPlugins",
                f"{own} is your own script and stays as it is. Ours is installed beside it, as {chained}; to run both, add as "
                f'the last line of yours: dofile("{chained}")\n'
                "Your functions run first, and what they refuse stays refused.",
            )
        )


def _plan_hook(draft: _Draft, key: str, ours: Path, read: ReadFile) -> None:
    there = draft.conf.value(key)
    if there == "":
        draft.conf = with_value(draft.conf, key, str(ours))
    elif not _calls(there, ours, read):
        draft.conflicts.append(Conflict(key, _call_from_theirs(key, there, ours)))


def _calls(program: str, ours: Path, read: ReadFile) -> bool:
    """Whether the program that is set is ours, or a script that names ours."""
    if program == str(ours):
        return True
    text = read(Path(program)) or ""
    return installed_files.script_version(text) is not None or any(
        str(ours) in line for line in text.splitlines() if not line.lstrip().startswith("#")
    )


def _call_from_theirs(key: str, theirs: str, ours: Path) -> str:
    if key == "TaskProlog":
        why = (
            "It has PyTorch jobs tell the node's agent how they train, and corrects the number of tasks that srun reads, for "
            "jobs spread over more nodes than tasks."
        )
    else:
        why = "It tells the controller at once when a job starts or ends; without it, that is seen at the next poll."
    return (
        f"{key} is {theirs} already, and Slurm runs one only: it stays. To run ours too, add to that script: {ours}\n"
        f"(its output must reach yours' standard output; it never fails and never waits). {why}"
    )


def _plan_scheduler_parameters(draft: _Draft) -> None:
    value = draft.conf.value("SchedulerParameters")
    set_to = [item for item in list_items(value) if item.startswith("batch_sched_delay=")]
    if not set_to:
        draft.conf = with_value(draft.conf, "SchedulerParameters", with_item(value, "batch_sched_delay=0"))
    elif set_to != ["batch_sched_delay=0"]:
        draft.notes.append(
            f"SchedulerParameters has {set_to[0]}: kept. With batch_sched_delay=0 a placed job starts within 0.2 s, with Slurm's "
            "default of 3 it takes up to 3 s."
        )


def _plan_file(draft: _Draft, path: Path, source: str, mode: int, runtime_dir: Path, read: ReadFile) -> None:
    wanted = installed_files.with_runtime_dir(source, runtime_dir)
    there = read(path)
    if there != wanted:
        draft.changes.append(FileChange(path, there, wanted, mode))


def _copies(conf: SlurmConf, changes: list[FileChange]) -> Iterator[str]:
    """Our scripts run wherever slurmctld does; one that lacks job_submit.lua does not start."""
    machines = [setting.value for setting in conf.settings if setting.key.lower() == "slurmctldhost"]
    if changes and len(machines) > 1:
        files = ", ".join(str(change.path) for change in changes)
        yield f"copy to every machine that slurmctld may run on ({', '.join(machines)}): {files}"


def _next_steps(before: SlurmConf, after: SlurmConf) -> Iterator[str]:
    changed = {setting.key for setting in after.settings if before.value(setting.key) != setting.value}
    if not changed:
        return
    yield DISTRIBUTE
    if "TaskProlog" in changed:
        yield f"see that every compute node finds {after.value('TaskProlog')}, executable: a job fails where it is missing"
    restart = bool(changed & set(installed_files.EVENT_KEYS))
    if restart:
        yield RESTART
    if not restart or "TaskProlog" in changed:
        yield RECONFIGURE
