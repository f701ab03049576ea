"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file: readers find the old content or the new, also after a kill or a power cut. Raises OSError."""
    prepare(path, content)
    put_in_place(path)


def prepare(path: Path, content: bytes) -> None:
    """Write and sync the content beside the path, over what a killed process left there. Raises OSError."""
    descriptor = os.open(_beside(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put_in_place(path: Path) -> None:
    """Replace the path by the prepared content. Raises OSError."""
    _beside(path).replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")
