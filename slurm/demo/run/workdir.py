"""The folder and the lock of the demonstration, and a guard that clears up after it even when it is killed.

Invariant: as long as anything of a demonstration may be left (its process, or the guard that clears up after it), the lock
is held, because both have the same open file; so no other begins before everything is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from slurm.demo.errors import DemoError, DemoRunningError, Interrupted

ALL_CLEAR = b"all clear\n"
"""What the guard is told when nothing is left to clear up."""


_GUARD_TIMEOUT_S = 60.0


class Ground:
    """Where one demonstration keeps what it writes."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """`cluster` is the mini-cluster that the guard takes down; "" = there is none."""
        self.folder = folder
        self._cluster = cluster
        self._lock: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Take the lock, empty the folder of what a crash left, and set the guard. Raises DemoRunningError."""
        self._lock = _lock(self.folder)
        try:
            _empty(self.folder)
            self._guard = _set_guard(self.folder, self._cluster, self._lock)
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Everything is stopped: delete the folder, send the guard home, give the lock back.

        After an error that may have left something behind, the guard does the clearing up.
        """
        assert self._lock is not None and self._guard is not None
        clear = value is None or isinstance(value, DemoError | Interrupted)
        if clear:
            remove(self.folder)
        self._guard.communicate(ALL_CLEAR if clear else b"", timeout=_GUARD_TIMEOUT_S)
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """Lock the folder itself: what is left when nobody holds the lock is nobody's."""
    while True:
        folder.mkdir(mode=0o755, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(descriptor).st_uid != os.geteuid():
            os.close(descriptor)
            raise DemoError(f"{folder}: belongs to somebody else; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DemoRunningError(
                f"{folder}: another `make demo` runs on this machine, or is just clearing up; wait for it, or end it with Ctrl-C"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)  # its last owner deleted it between our open and our lock


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def remove(folder: Path) -> None:
    """Delete the folder with all that is in it."""
    with contextlib.suppress(FileNotFoundError):
        _empty(folder)
        folder.rmdir()


def _set_guard(folder: Path, cluster: str, lock: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-m", "slurm.demo.run.guard", str(folder), cluster),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(lock,),
        start_new_session=True,
    )
