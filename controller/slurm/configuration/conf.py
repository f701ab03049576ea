"""slurm.conf, read as Slurm reads it.

Pure, except for `read_slurm_conf`, which receives the function that reads a file. Each setting is kept with its file and lines,
so that a change is made where Slurm reads the setting (`editing`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.base.errors import ConfigurationError

_PAIR = re.compile(r"(?<![\w.])([\w.]++)\s*+[-+*/]?=\s*+(?:\"([^\"]*)\"|(\S+))(?=\s|$)")
"""Its repetitions are possessive, so that the time for a long line grows only with its length."""
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_MAX_FILES = 100
_MOST_PATH = 4096
_RECORDS = frozenset({"nodename", "partitionname", "downnodes", "frontendname", "nodeset"})
"""Keys with which a record begins: the other keys of such a line belong to the record and are no settings."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One `Key=Value`, and where it stands: physical lines `first_line` to `last_line` (from 0) of `path`."""

    key: str
    value: str
    path: Path
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """slurm.conf and what it includes. Keys are looked up without regard to case; names of partitions and nodes keep theirs."""

    path: Path
    texts: Mapping[Path, str]
    """Every file that was read."""
    settings: tuple[Setting, ...]
    """Settings in the order in which Slurm reads them."""
    partitions: tuple[str, ...]

    def find(self, key: str) -> Setting | None:
        """Return the setting that is in effect (of several, Slurm takes the last); None when there is none."""
        wanted = key.lower()
        return next((setting for setting in reversed(self.settings) if setting.key.lower() == wanted), None)

    def value(self, key: str) -> str:
        """Return the value of a setting; empty when it is not set."""
        found = self.find(key)
        return found.value if found else ""


def read_exactly(path: Path) -> str:
    """Return the text of a file with its line endings as they are.

    Bytes that are no UTF-8, as in a comment in Latin-1, are kept for `surrogateescape`: Slurm reads any bytes.
    """
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def read_slurm_conf(path: Path, read: Callable[[Path], str] = read_exactly) -> SlurmConf:
    """Read slurm.conf and its include files. Raises ConfigurationError that names the file."""
    reader = _Reader(path, read)
    reader.take(path)
    return SlurmConf(path, reader.texts, tuple(reader.settings), tuple(reader.partitions))


class _Reader:
    """Reads files in the order of their include lines. Invariant: no file is read while it is being read.

    Bound: the files of one configuration.
    """

    def __init__(self, root: Path, read: Callable[[Path], str]) -> None:
        self._root = root
        self._read = read
        self._open: list[Path] = []
        self._taken = 0
        self.texts: dict[Path, str] = {}
        self.settings: list[Setting] = []
        self.partitions: list[str] = []

    def take(self, path: Path) -> None:
        source = str(self._open[-1]) if self._open else "slurm_conf"
        if len(str(path)) > _MOST_PATH:
            raise ConfigurationError(f"{source}: includes a path of {len(str(path))} characters; correct that line")
        if "\0" in str(path):
            raise ConfigurationError(f"{source}: includes a path with a null byte; correct that line")
        if path in self._open:
            raise ConfigurationError(f"{source}: includes {path}, which includes it in turn; remove one of the lines")
        # Counted each time: the same file may be included again and again.
        self._taken += 1
        if self._taken > _MAX_FILES:
            raise ConfigurationError(f"{source}: includes more than {_MAX_FILES} files; join some of them")
        try:
            text = self._read(path)
        except FileNotFoundError:
            by = f", included by {self._open[-1]}" if self._open else "; name the right one with --slurm-conf"
            raise ConfigurationError(f"{path}: no such file{by}") from None
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"{path}: cannot be read: {error}; run this as a user who may read it") from error
        self._open.append(path)
        self.texts[path] = text
        for first, last, line in logical_lines(text):
            if include := _INCLUDE.match(line):
                self.take(self._included(include[1]))
            else:
                self._line(path, first, last, line)
        self._open.pop()

    def _included(self, name: str) -> Path:
        cluster = next((s.value for s in reversed(self.settings) if s.key.lower() == "clustername"), "")
        return self._root.parent / name.replace("%c", cluster)

    def _line(self, path: Path, first: int, last: int, line: str) -> None:
        pairs = [(match[1], match[2] if match[2] is not None else match[3]) for match in _PAIR.finditer(line)]
        if pairs and pairs[0][0].lower() in _RECORDS:
            if pairs[0][0].lower() == "partitionname" and pairs[0][1].upper() != "DEFAULT":
                self.partitions.append(pairs[0][1])
            return
        self.settings += [Setting(key, value, path, first, last) for key, value in pairs]


def physical_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends. Only a newline ends a line, as for Slurm."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (first, last, content) of each line, without comments, with continued lines joined; empty lines are left out."""
    content, first = "", 0
    lines = physical_lines(text)
    for number, physical in enumerate(lines):
        if not content:
            first = number
        line = _without_comment(physical).rstrip()
        if line.endswith("\\") and number + 1 < len(lines):
            content += line[:-1]
            continue
        content += line.removesuffix("\\")
        if content.strip():
            yield first, number, content
        content = ""


def _without_comment(line: str) -> str:
    """Cut at the first "#" that no backslash stands before."""
    return re.split(r"(?<!\\)#", line, maxsplit=1)[0].replace("\\#", "#")


def list_items(value: str) -> tuple[str, ...]:
    """Return the items of a comma-separated value."""
    return tuple(item.strip() for item in value.split(",") if item.strip())
