"""A lock that allows one process at a time in a folder.

filelock does not serve: it keeps its descriptor to itself, and a forked process, which inherits the lock, has to close it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from policies.errors import TrainingError

_own: set[int] = set()
"""Descriptors of the locks that this process holds. Bound: the trainings under way."""
_AGAIN_S = 0.02


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


@contextmanager
def alone(folder: Path, within_s: float, *, reads: bool = False) -> Iterator[None]:
    """Hold a lock on the folder itself for a short change of what is in it, or with `reads` for a look that no change may cross.

    It leaves no file behind, needs no permission to write, and is another lock than that of `locked`. Where the file system has no
    locks on folders, nothing is locked. Raises TrainingError if other processes hold it for longer than that, and OSError if there
    is no such folder.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _own.add(lock)
    try:
        end_s = time.monotonic() + within_s
        with suppress(OSError):
            while not _taken(lock, fcntl.LOCK_SH if reads else fcntl.LOCK_EX):
                if time.monotonic() >= end_s:
                    raise TrainingError(f"{folder}: another process is changing the weights there; try again")
                time.sleep(_AGAIN_S)
        yield
    finally:
        _own.discard(lock)
        os.close(lock)


def _taken(lock: int, kind: int) -> bool:
    """Try to take the lock. Raises OSError if the file system does not have it."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go() -> None:
    """Release the locks in a forked process, such as one for environments, which may outlive its parent."""
    for lock in _own:
        os.close(lock)
    _own.clear()


os.register_at_fork(after_in_child=_let_go)
