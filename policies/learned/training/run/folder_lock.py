"""A lock that allows one process at a time in a folder.

filelock does not serve: it keeps its descriptor to itself, and a forked process, which inherits the lock, has to close it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from policies.errors import TrainingError

_own: set[int] = set()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder, and make it where it is missing. Raises TrainingError if another process holds it, or it cannot be made.

    The kernel releases the lock however the process ends.
    """
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}; give a folder that you can write to") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainingError(
                f"{folder}: another process trains there; wait for it, or give another folder"
            ) from None
        _own.add(lock)
        yield
    finally:
        _own.discard(lock)
        os.close(lock)


def _let_go() -> None:
    """Release the locks in a forked process, such as one for environments, which may outlive its parent."""
    for lock in _own:
        os.close(lock)
    _own.clear()


os.register_at_fork(after_in_child=_let_go)
