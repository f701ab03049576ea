"""The plan of `headway-setup spank`: the SPANK plugin of this machine, and its line in plugstack.conf.

`make_spank_plan` is a pure function of a `Machine` and of the texts of the files that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.slurm.configuration.conf import SlurmConf
from slurm.setup.draft import Conflict, FileChange, ReadFile
from slurm.setup.spank_build import PLUGIN_NAME, BuildId, Toolchain

PLUGIN_FOLDERS = (
    "usr/lib/*/slurm-wlm",
    "usr/lib/*/slurm",
    "usr/lib64/slurm",
    "usr/lib/slurm",
    "usr/local/lib/slurm",
    "usr/local/lib64/slurm",
)
"""Folders below / into which packages and `make install` put the plugins of Slurm."""
EVERYWHERE = (
    "install the plugin on every machine where jobs are submitted and on every compute node, built for the release of Slurm that "
    "runs there: run this command there, or copy {plugin}"
)
AFTER_UPGRADES = (
    "build the plugin again after every change to another release of Slurm (22.05 to 24.11, not 24.11.5 to 24.11.6); until then "
    "every sbatch, salloc and srun reports that the plugin is incompatible, and works without its options"
)
RELEASE_UNKNOWN = (
    "the release of Slurm on this machine could not be found (`scontrol --version` and `slurmd -V` fail): the plugin is built for "
    "{release}, the release of the headers"
)
COPY_PLUGSTACK = (
    "copy {plugstack} to every machine that has its own copy (with configless Slurm, run scontrol reconfigure instead)"
)
SENT = (
    "{path} is a copy of the file that slurmctld has sent (configless Slurm), and the next one replaces it. The line belongs into "
    "plugstack.conf beside slurm.conf on slurmctld's machine, when the plugin is on all machines. Add it there, then run "
    "scontrol reconfigure: {line}"
)
WORDS = "job_submit.lua copies the options into the comments of jobs: `headway-setup slurm` installs it on the machine of slurmctld"

_COMMENT_LINE = "# Headway (headway-setup spank)"
_MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about a machine from which a plan is made."""

    conf: SlurmConf
    digest: str
    """Digest of the source in this package."""
    slurm: str | None
    """Release of the installed Slurm; None when it could not be found."""
    tools: Toolchain | list[str]
    """Tools for a build, or the list of what is missing for it."""
    plugin: Path
    """Path at which the plugin belongs."""
    found_by_name: bool
    """True when Slurm finds the plugin there by its name alone."""
    installed: BuildId | None
    """Build id of the installed plugin; None when there is no plugin."""
    sent: bool = False
    """True when slurm.conf and the files beside it are copies that slurmctld has sent."""

    @property
    def line(self) -> str:
        """Line of plugstack.conf for the plugin."""
        return f"optional {PLUGIN_NAME if self.found_by_name else self.plugin}"


@dataclass(frozen=True, slots=True)
class SpankPlan:
    """Everything that a machine lacks."""

    plugin: Path
    build: Toolchain | None
    """Tools to build the plugin with; None when it is in place, or cannot be built."""
    plugstack: FileChange | None
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]
    next_steps: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """True when there is something to write."""
        return self.build is not None or self.plugstack is not None

    @property
    def complete(self) -> bool:
        """True when nothing is missing."""
        return not self.changes and not self.conflicts


def plugin_folder(conf: SlurmConf, root: Path = Path("/")) -> Path | None:
    """Return the folder of Slurm's plugins: PluginDir, else the one usual folder that holds some; None when none or several do."""
    if named := conf.value("PluginDir"):
        return Path(named.split(":", maxsplit=1)[0])
    found = [
        folder for pattern in PLUGIN_FOLDERS for folder in root.glob(pattern) if (folder / "auth_munge.so").exists()
    ]
    distinct = {folder.resolve(): folder for folder in found}
    return next(iter(distinct.values())) if len(distinct) == 1 else None


def make_spank_plan(
    machine: Machine, read: ReadFile, files: Callable[[Path, str], list[Path]], *, with_line: bool
) -> SpankPlan:
    """Return what to build and write. `read` returns the text of a file, `files` the files that an include pattern names.

    A line in plugstack.conf is added only `with_line`, and never for a plugin that is missing and cannot be built: every program
    of Slurm would print an error when it starts.
    """
    conflicts = list(_obstacles(machine))
    build = machine.tools if isinstance(machine.tools, Toolchain) and not conflicts and not _is_right(machine) else None
    path = plugstack_path(machine.conf)
    text = read(path)
    listed = find_line(path, read, files)
    is_sent = machine.sent and path.parent == machine.conf.path.parent
    plugstack, notes, steps = None, [], []
    if build is not None and machine.slurm is None:
        notes.append(RELEASE_UNKNOWN.format(release=build.release))
    if listed == "required":
        conflicts.append(
            Conflict(
                "plugstack.conf",
                f"{path} (or a file that it includes) calls {PLUGIN_NAME} `required`: no job would start on a machine without the "
                "plugin; write `optional` instead"
                + (", on slurmctld's machine, which has sent this copy" if is_sent else ""),
            )
        )
    elif listed is None and is_sent:
        text = SENT.format(path=path, line=machine.line)
        conflicts += [Conflict("plugstack.conf", text)] if with_line else []
        notes += [text] if not with_line else []
    elif listed is None and with_line and not conflicts:
        plugstack = FileChange(path, text, _with_line(text or "", machine), 0o644)
        steps.append(COPY_PLUGSTACK.format(plugstack=path))
    elif listed is None and not with_line:
        notes.append(
            f"{path} does not name the plugin, so no command has its options yet. When the plugin is on all machines, run "
            "headway-setup spank --plugstack --apply"
        )
    if build is not None or plugstack is not None:
        steps = [EVERYWHERE.format(plugin=machine.plugin), *steps, WORDS, AFTER_UPGRADES]
    return SpankPlan(machine.plugin, build, plugstack, tuple(conflicts), tuple(notes), tuple(steps))


def _is_right(machine: Machine) -> bool:
    """Return whether the installed plugin has the current source and release of Slurm (if unknown, the release of the headers)."""
    release = machine.slurm
    if release is None and isinstance(machine.tools, Toolchain):
        release = machine.tools.release
    return (
        machine.installed is not None
        and machine.installed.digest == machine.digest
        and machine.installed.release == release
    )


def _obstacles(machine: Machine) -> Iterator[Conflict]:
    """Yield the reasons why a plugin that is needed cannot be built."""
    if _is_right(machine):
        return
    if isinstance(machine.tools, list):
        for missing in machine.tools:
            yield Conflict(
                "build",
                f"{missing}. Or build the plugin on another machine with the same Slurm, and copy it to {machine.plugin}",
            )
    elif machine.slurm is not None and machine.tools.release != machine.slurm:
        yield Conflict(
            "build",
            f"the headers in {machine.tools.include} belong to Slurm {machine.tools.release}, but this machine runs Slurm "
            f"{machine.slurm}, which loads no plugin for another release: install the headers of {machine.slurm}, or name their "
            "folder by --include FOLDER",
        )


def plugstack_path(conf: SlurmConf) -> Path:
    """Return the file that lists SPANK plugins: PlugStackConfig, else plugstack.conf beside slurm.conf."""
    return Path(named) if (named := conf.value("PlugStackConfig")) else conf.path.parent / "plugstack.conf"


def find_line(path: Path, read: ReadFile, files: Callable[[Path, str], list[Path]]) -> str | None:
    """Return "optional" or "required", as plugstack.conf or a file that it includes lists the plugin; None when not listed."""
    waiting, seen = [path], set[Path]()
    while waiting and len(seen) < _MAX_FILES:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen.add(file)
        for line in (read(file) or "").splitlines():
            words = line.partition("#")[0].split()
            if len(words) >= 2 and words[0] == "include":
                waiting += files(file.parent, words[1])
            elif len(words) >= 2 and Path(words[1]).name == PLUGIN_NAME:
                return words[0]
    return None


def _with_line(text: str, machine: Machine) -> str:
    gap = "" if re.search(r"(\A|\n)\Z", text) else "\n"
    return f"{text}{gap}{_COMMENT_LINE}\n{machine.line}\n"
