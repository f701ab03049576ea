"""Parts of a plan: files to write, decisions of the operator, and the slurm.conf that changes step by step."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf, physical_lines
from controller.slurm.configuration.editing import block_of, with_value
from slurm.setup.record import Edit

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


@dataclass(slots=True)
class Draft:
    """A plan while it is made: everything found so far."""

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


def plan_file(draft: Draft, path: Path, source: str, mode: int, runtime_dir: Path, read: ReadFile) -> None:
    """Add the change that puts a script of Headway's in place; none where it is already."""
    wanted = installed_files.with_runtime_dir(source, runtime_dir)
    there = read(path)
    if there != wanted:
        draft.changes.append(FileChange(path, there, wanted, mode))
