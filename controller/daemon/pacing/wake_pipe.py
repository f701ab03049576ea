"""The wake pipe, through which job_submit.lua and the hooks notify the controller of events.

Two named pipes that the controller keeps open for reading and writing, so that a writer never blocks on opening one and it
never reports its end. One is for job_submit.lua alone, which counts what it writes because a write to a full pipe would stop
slurmctld; the other, "-hooks", is for the hooks, which give up when it is full. A line only says *when* to read Slurm; the
event itself is read from Slurm, so a lost or forged line costs a reading and nothing else. The holds of users are in files
beside it (controller.slurm.user_holds).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.base.lease import wake_room

_MAX_LINE = 256


@dataclass(slots=True)
class Woken:
    """Numbers of lines that came through the pipe since the last `take`, by kind."""

    submitted: int = 0
    started: int = 0
    ended: int = 0
    """Ended jobs, and lines of any other kind."""
    user_holds: int = 0
    """Holds that users requested."""

    @property
    def any(self) -> bool:
        """True if any line came."""
        return bool(self.submitted or self.started or self.ended or self.user_holds)


class WakePipe:
    """Reader of the pipes. Invariant: lines are counted, never stored, so that a flood costs no memory."""

    def __init__(self, path: Path) -> None:
        """Make the pipes. Raises ConfigurationError when the path exists and is no pipe."""
        self._path = path
        self._event = asyncio.Event()
        self._woken = Woken()
        self._nudged = False
        self._fds = _open_all((path, path.with_name(f"{path.name}-hooks")))
        self._rests = dict.fromkeys(self._fds, b"")
        for descriptor in self._fds:
            asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    def grant(self, group_id: int) -> None:
        """Let members of a group write: slurmctld's group, when the controller runs as another user. Raises OSError."""
        for descriptor in self._fds:
            os.fchown(descriptor, -1, group_id)
            os.fchmod(descriptor, 0o660)

    @property
    def room_bytes(self) -> int:
        """Number of bytes that job_submit.lua can write without blocking; it is part of the lease."""
        return wake_room(self._fds[0])

    def close(self) -> None:
        """Stop reading. The pipes stay, because writers expect them."""
        for descriptor in self._fds:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    async def wait(self, timeout_s: float, until: Callable[[Woken], bool] = lambda _: True) -> None:
        """Wait until lines have come since the last `take` for which `until` is true, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
                while not (self._nudged or until(self._woken)):
                    self._event.clear()
                    await self._event.wait()
        except TimeoutError:
            pass
        if self._woken.any:
            self._event.set()  # the next wait sees it as well

    def nudge(self) -> None:
        """End every `wait`, until the next `take`."""
        self._nudged = True
        self._event.set()

    @property
    def so_far(self) -> Woken:
        """Counts since the last `take`; they grow."""
        return self._woken

    def take(self) -> Woken:
        """Return the counts since the last call, and reset them."""
        woken, self._woken = self._woken, Woken()
        self._nudged = False
        self._event.clear()
        return woken

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return
        *lines, rest = (self._rests[descriptor] + data).split(b"\n")
        self._rests[descriptor] = rest[-_MAX_LINE:]
        for line in lines:
            self._count(line[:_MAX_LINE].decode("ascii", "replace").split())
        self._event.set()

    def _count(self, words: list[str]) -> None:
        match words:
            case ["submit" | "user-release", *_]:
                self._woken.submitted += 1
            case ["start", *_]:
                self._woken.started += 1
            case ["user-hold", *_]:
                self._woken.user_holds += 1
            case _:
                self._woken.ended += 1


def _open_all(paths: Sequence[Path]) -> list[int]:
    """Make and open the pipes: all or none. Raises ConfigurationError."""
    opened: list[int] = []
    try:
        for path in paths:
            try:
                _make_fifo(path)
                opened.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW))
            except OSError as error:
                raise ConfigurationError(
                    f"{path}: the wake pipe cannot be made: {error}; check the folder's owner"
                ) from error
    except ConfigurationError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return opened


def _make_fifo(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        os.mkfifo(path, 0o600)
    else:
        if not stat.S_ISFIFO(found.st_mode):
            raise ConfigurationError(f"{path}: this is not a named pipe; remove it")
