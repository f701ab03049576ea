"""The record of what `headway-setup slurm --apply` has changed, from which `--undo` takes it back. Pure functions, except that
links are resolved.

It is a file beside the hooks. An installation of an earlier version has none, and its first record is not complete; `--undo` then
judges by the form of the settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.slurm.configuration import installed_files

RECORD_NAME = "setup.json"
"""Name of the record for a file with the name slurm.conf."""
_USUAL = "slurm.conf"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Edit:
    """One setting that was added or changed, with the physical lines that hold it."""

    key: str
    before: str | None
    """The lines before the change; None when the setting was added on a line of its own."""
    after: str


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that was written, newest last. Invariant: a key has at most one edit, and a file is named once."""

    edits: tuple[Edit, ...] = ()
    files: tuple[Path, ...] = ()
    """Scripts that were written, as they were named: a symbolic link is not followed."""
    newline_added: bool = False
    """True when slurm.conf had no newline at its end before settings were added."""
    complete: bool = True
    """False when parts of Headway were there before the record was begun, so that settings without an edit may be Headway's too."""

    def wrote(self, path: Path) -> bool:
        """Return whether a file is among those that were written, by any of its paths."""
        return real_path(path) in map(real_path, self.files)

    def with_edits(self, edits: list[Edit]) -> Record:
        """Return the record with newer edits. An older edit of the same key is not in effect any more, so it is forgotten."""
        newer = {edit.key for edit in edits}
        return replace(self, edits=(*(edit for edit in self.edits if edit.key not in newer), *edits))

    def with_files(self, files: list[Path]) -> Record:
        """Return the record with more files."""
        return replace(self, files=tuple(dict.fromkeys((*self.files, *files))))


def real_path(path: Path) -> Path:
    """Return the path of a file without symbolic links: the same file may be named through a link of its folder."""
    return Path(os.path.realpath(path))  # unlike Path.resolve(), it takes links that form a circle


def record_path(slurm_conf: Path, read: Callable[[Path], str | None]) -> Path:
    """Return the path of the record of an installation. Clusters whose slurm.conf are in one folder have one each.

    Earlier versions had one name for all: such a record counts as long as no slurm.conf can claim it.
    """
    folder = slurm_conf.parent / installed_files.HOOKS_FOLDER
    usual, own = folder / RECORD_NAME, folder / f"setup-{slurm_conf.name}.json"
    is_of_earlier_version = read(own) is None and read(usual) is not None and read(slurm_conf.with_name(_USUAL)) is None
    return usual if slurm_conf.name == _USUAL or is_of_earlier_version else own


def record_text(record: Record) -> str:
    """Return the text of the file."""
    document = {
        "version": _VERSION,
        "note": "written by `headway-setup slurm --apply`; `headway-setup slurm --undo` needs it",
        "edits": [{"key": edit.key, "before": edit.before, "after": edit.after} for edit in record.edits],
        "files": [str(path) for path in record.files],
        "newline_added": record.newline_added,
        "complete": record.complete,
    }
    return json.dumps(document, indent=2) + "\n"


def parse_record(path: Path, text: str | None) -> Record | None:
    """Return the record in a text; None without a text. Raises ConfigurationError when the text is damaged."""
    if text is None:
        return None
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']}, this program knows {_VERSION}")
        record = Record(
            tuple(Edit(edit["key"], edit["before"], edit["after"]) for edit in document["edits"]),
            tuple(Path(name) for name in document["files"]),
            document["newline_added"],
            document.get("complete", True),
        )
        _require_types(record)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path}: this record of the installation cannot be used ({type(error).__name__}: {error}); move it away, and run this "
            "command again: it then judges by the form of the settings"
        ) from error
    return record


def _require_types(record: Record) -> None:
    texts = [text for edit in record.edits for text in (edit.key, edit.before or "", edit.after)]
    flags = (record.newline_added, record.complete)
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(flag, bool) for flag in flags):
        raise TypeError("a value has the wrong type")
