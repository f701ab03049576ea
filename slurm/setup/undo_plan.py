"""The plan of `headway-setup slurm --undo`: slurm.conf as it would be without Headway, and the files to remove.

Pure functions, except that links are resolved. Every other change that an operator has made since the installation stays. A file
is removed only when nothing runs it any more: a PrologSlurmctld that is missing makes slurmctld requeue jobs, a missing TaskProlog
makes them fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.slurm.configuration import installed_files, site_lua
from controller.slurm.configuration.conf import SlurmConf
from slurm.setup.draft import Conflict, FileChange, ReadFile
from slurm.setup.plan import DISTRIBUTE, RECONFIGURE, RESTART, Sources, calls, changed_texts
from slurm.setup.record import Record, real_path, record_path, record_text
from slurm.setup.sharing import user_of
from slurm.setup.slurmctld import SlurmctldState, UnknownSlurmctld
from slurm.setup.undo_edits import HOOK_KEYS, ITEMS, undo_edits

AGAIN = "run this command again: it then removes the files that slurmctld or jobs may still use"
NONE_RUNS = (
    "no slurmctld runs with this slurm.conf, so the files are removed at once: it reads slurm.conf anew when it starts"
)
NOT_KNOWN = (
    "the files stay, because slurmctld may use them: none answers ({why}). Run this command where `scontrol show config` works. "
    "If no slurmctld runs with this slurm.conf on any machine, add --slurmctld-gone"
)
SHARED = (
    "left behind: {path}, the TaskProlog, which other clusters may use too. Remove it when no cluster uses it: add "
    "--task-prolog {path} to this command"
)
USED = (
    "left behind: {path}, which {conf} (ClusterName={cluster}) uses too. An undo for that slurm.conf removes it; if no slurmctld "
    "reads that file, move it away, and run this command again"
)
CONTROLLER_RUNS = (
    "the controller runs. Stop it first, and release the jobs that it holds: systemctl disable --now headway-controller "
    "headway-policy, then systemctl start headway-watchdog.service"
)


@dataclass(frozen=True, slots=True)
class Removal:
    """One file to remove. It is copied first when its text is not exactly one that Headway writes."""

    path: Path
    keep_copy: bool = False


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """Everything of Headway that can be taken back now, and what cannot."""

    changes: tuple[FileChange, ...]
    removals: tuple[Removal, ...]
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]
    """Facts to know, and what stays."""
    next_steps: tuple[str, ...]
    waiting: tuple[Path, ...] = ()
    """Files that a later run removes."""

    @property
    def complete(self) -> bool:
        """True when nothing is left to take back."""
        return not (self.changes or self.removals or self.conflicts or self.waiting)


@dataclass(frozen=True, slots=True)
class Installed:
    """Facts from which the plan is made."""

    conf: SlurmConf
    record: Record | None
    sources: Sources
    running: SlurmctldState
    is_link: Callable[[Path], bool]
    controller_runs: bool
    task_prolog: Path | None = None
    """Path of the TaskProlog from the command line: an operator has stated that no cluster uses it any more."""
    others: tuple[SlurmConf, ...] = ()
    """Configurations of other clusters in the folder of slurm.conf."""


@dataclass(slots=True)
class _Draft:
    removals: list[Removal] = field(default_factory=list)
    waiting: list[Path] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_undo_plan(installed: Installed, read: ReadFile, left_behind: Callable[[list[Path]], list[str]]) -> UndoPlan:
    """Return the plan. `left_behind` names the other traces of Headway near these files, a sentence for each.

    Raises ConfigurationError that names a line which cannot be edited.
    """
    conf, draft = installed.conf, _Draft()
    edits = undo_edits(conf, installed.record, read)
    draft.notes += edits.notes
    changes = changed_texts(conf, edits.conf)
    candidates = _candidates(installed)
    scripts = {
        path: key for path, key in candidates.items() if installed_files.script_version(read(path) or "") is not None
    }
    for path, key in scripts.items():
        _plan_script(draft, installed, edits.conf, path, key, read)
    changes += _plan_record(draft, installed, read)
    if draft.removals and installed.running is None:
        draft.notes.insert(0, NONE_RUNS)
    if draft.waiting and isinstance(installed.running, UnknownSlurmctld):
        draft.notes.insert(0, NOT_KNOWN.format(why=installed.running.why))
    if (changes or draft.removals) and installed.controller_runs:
        draft.notes.insert(0, CONTROLLER_RUNS)
    draft.notes += left_behind([*conf.texts, *candidates])
    return UndoPlan(
        tuple(changes),
        tuple(draft.removals),
        tuple(draft.conflicts),
        tuple(draft.notes),
        tuple(_next_steps(conf, edits.conf, draft)),
        tuple(draft.waiting),
    )


def _candidates(installed: Installed) -> dict[Path, str]:
    """Return the paths where scripts of Headway may be, each with the key of slurm.conf through which Slurm runs it.

    A file that is named by several paths is there once, since each of its paths removes it.
    """
    folder = installed.conf.path.parent
    found = {
        folder / installed_files.LUA_NAME: "JobSubmitPlugins",
        folder / installed_files.CHAINED_LUA_NAME: "JobSubmitPlugins",
        folder / installed_files.HOOKS_FOLDER / installed_files.EVENT_HOOK: "PrologSlurmctld",
    }
    task_prologs = [Path(setting.value) for setting in installed.conf.settings if setting.key.lower() == "taskprolog"]
    others = installed.record.files if installed.record else ()
    for path in (*task_prologs, *others, *([installed.task_prolog] if installed.task_prolog else [])):
        found.setdefault(path, "TaskProlog")
    once: dict[Path, tuple[Path, str]] = {}
    for path, key in found.items():
        once.setdefault(real_path(path), (path, key))
    return dict(once.values())


def _plan_script(draft: _Draft, installed: Installed, after: SlurmConf, path: Path, key: str, read: ReadFile) -> None:
    text = read(path) or ""
    if other := user_of(path, key, installed.others, read):
        draft.notes.append(USED.format(path=path, conf=other.path, cluster=other.value("ClusterName")))
    elif caller := _caller(after, path, key, read, _names_of(installed, path)):
        draft.conflicts.append(Conflict(caller[0], caller[1]))
    elif installed.is_link(path) and not (installed.record and installed.record.wrote(path)):
        draft.notes.append(f"left behind: {path}, a link that was not made by this program, to a script of Headway")
    elif key == "TaskProlog" and _may_be_shared(installed, path):
        draft.notes.append(SHARED.format(path=path))
    elif _in_use(installed, after, path, key):
        draft.waiting.append(path)
    else:
        draft.removals.append(Removal(path, keep_copy=not _is_shipped(text, installed.sources)))
        if installed.is_link(path):
            draft.notes.append(f"left behind: {path}, a link that this program did not make; it points to nothing now")


def _names_of(installed: Installed, path: Path) -> set[Path]:
    """Return the paths by which a script may name a file of Headway."""
    recorded = installed.record.files if installed.record else ()
    return {path, real_path(path), *(each for each in recorded if real_path(each) == real_path(path))}


def _caller(after: SlurmConf, path: Path, key: str, read: ReadFile, names: set[Path]) -> tuple[str, str] | None:
    """Return the key and the sentence about a script of the site that runs this one by any name; None when none does."""
    if path.name == installed_files.CHAINED_LUA_NAME:
        own = path.parent / installed_files.LUA_NAME
        text = read(own) or ""
        if installed_files.script_version(text) is None and site_lua.names_ours(text):
            mend = f'remove the line dofile("{path}") from it, or whatever else loads that file'
            return key, f"{own} is your own script, and names {path}: {mend}"
        return None
    is_event = key in installed_files.EVENT_KEYS
    keys = {name.lower() for name in (installed_files.EVENT_KEYS if is_event else (key,))}
    for setting in after.settings:
        # The name of the event hook is enough, since a script may put its path together.
        if setting.key.lower() in keys and (
            any(calls(setting.value, name, read) for name in names)
            or (is_event and calls(setting.value, Path(path.name), read))
        ):
            return (
                setting.key,
                f"{setting.key}={setting.value} is your own script, and runs {path}: remove that line from it",
            )
    return None


def _may_be_shared(installed: Installed, path: Path) -> bool:
    """Return whether other clusters may run a TaskProlog: it is not beside slurm.conf, and was not named by the operator."""
    if installed.task_prolog is not None and real_path(path) == real_path(installed.task_prolog):
        return False
    return not real_path(path).is_relative_to(real_path(installed.conf.path.parent))


def _in_use(installed: Installed, after: SlurmConf, path: Path, key: str) -> bool:
    """Return whether slurmctld, or slurmd on a node, may still run the script."""
    if key == "TaskProlog" and _changed(installed.conf, after, key):
        return True  # slurmd on the nodes runs it until each has the new slurm.conf
    running = installed.running
    if running is None or isinstance(running, UnknownSlurmctld):
        return running is not None
    if key == "JobSubmitPlugins":
        return path.name == installed_files.LUA_NAME and running.loads_lua()
    return any(running.uses(name, path) for name in HOOK_KEYS)


def _is_shipped(text: str, sources: Sources) -> bool:
    return _neutral(text) in {_neutral(source) for source in (sources.lua, sources.event_hook, sources.task_prolog)}


def _neutral(text: str) -> str:
    """Return a script with the paths that the installation writes into it replaced."""
    return installed_files.with_job_side(installed_files.with_runtime_dir(text, Path("/")), Path("/"), Path("/"))


def _plan_record(draft: _Draft, installed: Installed, read: ReadFile) -> list[FileChange]:
    """Remove the record with the last script; until then keep it, without the edits that are taken back."""
    path = record_path(installed.conf.path, read)
    text = read(path)
    if installed.record is None or text is None:
        return []
    if not draft.waiting and not draft.conflicts:
        draft.removals.append(Removal(path))
        return []
    rest = record_text(replace(installed.record, edits=(), newline_added=False))
    return [FileChange(path, text, rest, 0o644, copied=False)] if rest != text else []


def _changed(before: SlurmConf, after: SlurmConf, key: str) -> bool:
    return before.value(key) != after.value(key)


def _next_steps(before: SlurmConf, after: SlurmConf, draft: _Draft) -> Iterator[str]:
    keys = {key for key in (*HOOK_KEYS, *ITEMS) if _changed(before, after, key)}
    if keys:
        yield DISTRIBUTE
    restart = bool(keys & set(installed_files.EVENT_KEYS))
    if restart:
        yield RESTART
    if keys and (not restart or "TaskProlog" in keys):
        yield RECONFIGURE
    if draft.waiting and not keys:
        yield RESTART
        yield RECONFIGURE
    if draft.waiting or draft.conflicts:
        yield AGAIN
    machines = [setting.value for setting in before.settings if setting.key.lower() == "slurmctldhost"]
    if draft.removals and len(machines) > 1:
        files = ", ".join(str(removal.path) for removal in draft.removals)
        yield f"remove from every other machine that slurmctld may run on ({', '.join(machines)}): {files}"
