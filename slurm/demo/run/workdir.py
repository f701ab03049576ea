"""The folder and the lock of the demonstration, and a guard process that clears up even when the demonstration is killed.

Invariant: the demonstration and its guard share the open file of the lock, so the lock is held while either of them runs, and no
other demonstration begins before everything of this one is removed.
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
"""Message to the guard when everything has been removed."""
_GUARD_TIMEOUT_S = 60.0


class DemoFolder:
    """The folder of one demonstration."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Describe the folder. `cluster` is the mini-cluster that the guard takes down; "" for none."""
        self.folder = folder
        self._cluster = cluster
        self._lock: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Take the lock, remove what a crash has left in the folder, and start the guard. Raises DemoRunningError."""
        self._lock = _lock(self.folder)
        try:
            _empty(self.folder)
            self._guard = _start_guard(self.folder, self._cluster, self._lock)
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the folder, end the guard and release the lock, after everything has been stopped.

        After an error that may have left something behind, the guard clears up.
        """
        assert self._lock is not None and self._guard is not None
        clear = value is None or isinstance(value, DemoError | Interrupted)
        if clear:
            remove(self.folder)
        self._guard.communicate(ALL_CLEAR if clear else b"", timeout=_GUARD_TIMEOUT_S)
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """Lock the folder itself: files in a folder without a lock belong to no running demonstration.

    filelock does not serve: it locks a file of its own, which would remain when the folder is removed.
    """
    while True:
        folder.mkdir(mode=0o755, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(descriptor).st_uid != os.geteuid():
            os.close(descriptor)
            raise DemoError(f"{folder}: this folder belongs to another user; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DemoRunningError(
                f"{folder}: another `make demo` runs on this machine, or is clearing up; wait for its end, or end it with Ctrl-C"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                os.fchmod(descriptor, 0o755)  # Slurm's user and the jobs' enter it, whatever the umask is
                return descriptor
        os.close(descriptor)  # the last owner deleted the folder between open and lock


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def remove(folder: Path) -> None:
    """Delete the folder with everything in it."""
    with contextlib.suppress(FileNotFoundError):
        _empty(folder)
        folder.rmdir()


def _start_guard(folder: Path, cluster: str, lock: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-m", "slurm.demo.run.guard", str(folder), cluster),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(lock,),
        start_new_session=True,
    )
