"""A file of JSON lines, one object each: only appended to, bounded in size, and never a reason to stop a program."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from policies.documents import DocumentError, parse_json

log = structlog.get_logger(__name__)


class JsonLines:
    """Appends objects to a file; a full file is renamed to NAME.1, the one before to NAME.2, and so on.

    Invariant: at most `files` files of `max_bytes` each (or of one longer line), and no method raises an OSError. A line is not
    forced to the disk, so a loss of power may take the newest lines.
    """

    def __init__(self, path: Path, *, max_bytes: int, files: int, mode: int) -> None:
        """`mode` is the mode of a new file; its folder has to exist."""
        self.path = path
        self._max_bytes = max_bytes
        self._files = files
        self._mode = mode
        self.problem = ""
        """Why the last line could not be written; empty when it was."""

    def append(self, value: Mapping[str, Any]) -> None:
        """Append one object. If that fails, `problem` says why, the log says it once, and the next call tries again."""
        try:
            self._write(json.dumps(value).encode() + b"\n")
        except OSError as error:
            problem = error.strerror or str(error)
            if problem != self.problem:
                log.error("line_not_written", path=str(self.path), problem=problem)
            self.problem = problem
        else:
            self.problem = ""

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of all files, oldest first. Lines that are no objects, and files that cannot be read, are left out."""
        for path in reversed([self._numbered(number) for number in range(self._files)]):
            try:
                lines = path.read_bytes().splitlines()
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    log.warning("lines_not_read", path=str(path), problem=error.strerror)
                continue
            for line in lines:
                try:
                    value = parse_json(line)
                except DocumentError:  # a line that was written in part, or by something else
                    continue
                if isinstance(value, dict):
                    yield value

    def _numbered(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.name}.{number}")

    def _write(self, line: bytes) -> None:
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > self._max_bytes:
                os.close(descriptor)
                descriptor = -1
                self._rotate()
                descriptor, size = self._open(), 0
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the line before was written in part
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _open(self) -> int:
        """Open the file, or make it. It is opened for each line, so that another program may rename or remove it."""
        # Bound: the class's invariant; `_write` renames a full file.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self.path, flags, self._mode)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file")
        if not found.st_size and stat.S_IMODE(found.st_mode) != self._mode:
            os.fchmod(descriptor, self._mode)  # the umask of the process may be narrower
        return descriptor

    def _rotate(self) -> None:
        for number in reversed(range(self._files - 1)):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        if self._files == 1:
            self.path.unlink()
