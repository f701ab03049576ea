"""What `headway-setup spank` would do: the SPANK plugin of this machine, and its line in plugstack.conf.

Pure but for what it is given: `SpankPlan` is made of a `Machine`, which says what is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.slurm.configuration.conf import SlurmConf
from slurm.setup.plan import Conflict, FileChange, ReadFile
from slurm.setup.spank_build import PLUGIN_NAME, Mark, Toolchain

PLUGIN_FOLDERS = (
    "usr/lib/*/slurm-wlm",
    "usr/lib/*/slurm",
    "usr/lib64/slurm",
    "usr/lib/slurm",
    "usr/local/lib/slurm",
    "usr/local/lib64/slurm",
)
"""Where packages and `make install` put Slurm's plugins, below /."""
EVERYWHERE = (
    "have the plugin, built for the release of Slurm that runs there, on every machine where jobs are submitted and on every "
    "compute node: run this there, or copy {plugin}"
)
AFTER_UPGRADES = (
    "after every change to another release of Slurm (22.05 to 24.11, not 24.11.5 to 24.11.6) build it again; until then every "
    "sbatch, salloc and srun says that it is incompatible, and goes on without its options"
)
RELEASE_UNKNOWN = (
    "which release of Slurm is here could not be told (`scontrol --version` and `slurmd -V` fail): the plugin is for {release}, as "
    "the headers are"
)
COPY_PLUGSTACK = "copy {plugstack} to every machine that has one of its own (configless Slurm: scontrol reconfigure)"
WORDS = "the options become words in jobs' comments by job_submit.lua: `headway-setup slurm` installs it on slurmctld's machine"

_MARK_LINE = "# Headway (headway-setup spank)"
_MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan needs to know of a machine."""

    conf: SlurmConf
    digest: str
    """Of the source that we have."""
    slurm: str | None
    """Release of the Slurm that is installed; None: it cannot be told."""
    tools: Toolchain | list[str]
    """What to build with, or what is missing for it."""
    plugin: Path
    """Where the plugin belongs."""
    found_by_name: bool
    """Whether Slurm finds it there by its name alone."""
    there: Mark | None
    """What the plugin that is there was made of."""


@dataclass(frozen=True, slots=True)
class SpankPlan:
    """Everything that is missing."""

    plugin: Path
    build: Toolchain | None
    """What to build the plugin with; None: it is in place, or cannot be built."""
    plugstack: FileChange | None
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]
    next_steps: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether there is something to write."""
        return self.build is not None or self.plugstack is not None

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return not self.changes and not self.conflicts


def plugin_folder(conf: SlurmConf, root: Path = Path("/")) -> Path | None:
    """Where this machine's Slurm looks for plugins: PluginDir, else the one usual place that has some; None: none, or several."""
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
    """What to build and write. `read` gives a file's text, `files` those that an include pattern in a folder names.

    A line in plugstack.conf is only added `with_line`, and never for a plugin that is not there and cannot be built: Slurm's
    programs would print an error at every start.
    """
    conflicts = list(_obstacles(machine))
    build = machine.tools if isinstance(machine.tools, Toolchain) and not conflicts and not _is_right(machine) else None
    path = plugstack_path(machine.conf)
    text = read(path)
    listed = find_line(path, read, files)
    plugstack, notes, steps = None, [], []
    if build is not None and machine.slurm is None:
        notes.append(RELEASE_UNKNOWN.format(release=build.release))
    if listed == "required":
        conflicts.append(
            Conflict(
                "plugstack.conf",
                f"{path} (or a file that it includes) says `required` before {PLUGIN_NAME}: no job would start where the plugin is "
                "missing; write `optional` there",
            )
        )
    elif listed is None and with_line and not conflicts:
        plugstack = FileChange(path, text, _with_line(text or "", machine), 0o644)
        steps.append(COPY_PLUGSTACK.format(plugstack=path))
    elif listed is None and not with_line:
        notes.append(
            f"{path} does not name the plugin, so no command has its options yet. When it is on all machines: "
            "headway-setup spank --plugstack --apply"
        )
    if build is not None or plugstack is not None:
        steps = [EVERYWHERE.format(plugin=machine.plugin), *steps, WORDS, AFTER_UPGRADES]
    return SpankPlan(machine.plugin, build, plugstack, tuple(conflicts), tuple(notes), tuple(steps))


def _is_right(machine: Machine) -> bool:
    """Whether the plugin that is there is of our source, for the Slurm that is there (else for the headers' one)."""
    release = machine.slurm
    if release is None and isinstance(machine.tools, Toolchain):
        release = machine.tools.release
    return machine.there is not None and machine.there.digest == machine.digest and machine.there.release == release


def _obstacles(machine: Machine) -> Iterator[Conflict]:
    """What keeps us from building a plugin that is needed."""
    if _is_right(machine):
        return
    if isinstance(machine.tools, list):
        for missing in machine.tools:
            yield Conflict(
                "build",
                f"{missing}. Or build it on another machine with the same Slurm, and copy it to {machine.plugin}",
            )
    elif machine.slurm is not None and machine.tools.release != machine.slurm:
        yield Conflict(
            "build",
            f"the headers in {machine.tools.include} are of Slurm {machine.tools.release}, and Slurm here is {machine.slurm}, "
            f"which loads no plugin built for another release: install the headers of {machine.slurm}, or name their folder: "
            "--include FOLDER",
        )


def plugstack_path(conf: SlurmConf) -> Path:
    """The file that lists SPANK plugins: PlugStackConfig, else beside slurm.conf."""
    return Path(named) if (named := conf.value("PlugStackConfig")) else conf.path.parent / "plugstack.conf"


def find_line(path: Path, read: ReadFile, files: Callable[[Path, str], list[Path]]) -> str | None:
    """The word, "optional" or "required", before our plugin in plugstack.conf and what it includes; None: it is not listed."""
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
    name = PLUGIN_NAME if machine.found_by_name else str(machine.plugin)
    gap = "" if re.search(r"(\A|\n)\Z", text) else "\n"
    return f"{text}{gap}{_MARK_LINE}\noptional {name}\n"
