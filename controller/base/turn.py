"""Turns of controller and watchdog, so that only one of the two changes jobs in Slurm at a time.

The lease alone does not exclude that both do: a controller that was stopped, or could not reach Slurm, for longer than its lease
holds may continue while the watchdog releases its jobs. The commands of one (restore a request, release) would then fall between
the commands of the other (pin in another size, release).

Each of the two has a file. To begin a turn, a process writes that it waits, and begins when the other has no turn. It calls
`check` before every command to Slurm; that raises TurnLostError if the other has begun a turn since. The other does so only if
the owner of the turn is dead, or has given no sign of life for `lasts_s`, because it was stopped or Slurm is slow.

Invariant: if `check` succeeds, the other process has begun no turn since this one began. A process that is stopped between a check
and its command is the one case that cannot be excluded. Where the folder cannot be written there are no turns, and the log says so,
because that is no reason to leave jobs held.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from controller.base.clock import Clock
from controller.base.errors import TurnLostError

log = structlog.get_logger(__name__)

_MAX_BYTES = 200
_WAITING, _BUSY, _OVER = "waiting", "busy", "over"
_LOOK_S = 0.1
"""Time between two looks at the other's file, seconds."""
_COMMANDS = 3
"""Factor on the time limit of a call to Slurm, for the time after which a turn without a sign of life is over."""
_RENEW_S = 1.0
"""Age of the last sign of life above which a check gives a new one, seconds."""
_PATIENCE = 4
"""Factor on the time that a turn lasts without a sign of life, for the wait of a process that gives way."""


def controller_turn(
    runtime_dir: Path, slurm_timeout_s: float, clock: Clock, permitted: Callable[[], None] | None = None
) -> Turn:
    """Return the controller's turns. `slurm_timeout_s`: time limit of one call to Slurm.

    Every check calls `permitted`, which raises TurnLostError when this process may not change jobs for another reason.
    """
    turn = _turn(runtime_dir, ("controller.turn", "watchdog.turn"), slurm_timeout_s, clock, gives_way=False)
    turn.permitted = permitted
    return turn


def watchdog_turn(runtime_dir: Path, slurm_timeout_s: float, clock: Clock) -> Turn:
    """Return the watchdog's turns, which give way to the controller's. `slurm_timeout_s` is the controller's limit, not its own."""
    return _turn(runtime_dir, ("watchdog.turn", "controller.turn"), slurm_timeout_s, clock, gives_way=True)


def _turn(folder: Path, names: tuple[str, str], slurm_timeout_s: float, clock: Clock, *, gives_way: bool) -> Turn:
    own, other = (folder / name for name in names)
    return Turn(own, other, clock, _COMMANDS * slurm_timeout_s, gives_way=gives_way)


class Turn:
    """The turns of one process. Invariant: not used by several tasks at once."""

    def __init__(self, own: Path, other: Path, clock: Clock, lasts_s: float, *, gives_way: bool) -> None:
        """`own` and `other` are files in one folder; `lasts_s` is more than one command may take, seconds.

        A process that gives way lets the other begin first whenever that waits too: the watchdog does, so that a controller that
        is back does not wait for a long check. `clock.monotonic` must be the same in both processes.
        """
        self._own = own
        self._other = other
        self._clock = clock
        self._lasts_s = lasts_s
        self._gives_way = gives_way
        self._newest = _newest(_read(own))
        self._state = _OVER
        self._renewed_s = 0.0
        self._others_last = ""
        """The other's newest turn at the beginning of this one."""
        self._problem = ""
        self.permitted: Callable[[], None] | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[bool]:
        """A turn, from the moment at which the other has none. Yields whether the other had one since the last turn of this."""
        try:
            yield await self._begin()
        finally:
            self._set(_OVER)

    def check(self) -> None:
        """Raise TurnLostError if the other has begun a turn since this one began, or `permitted` raises it.

        Outside a turn only the latter counts.
        """
        if self.permitted is not None:
            self.permitted()
        if self._state != _BUSY:
            return
        if _newest(_read(self._other)) != self._others_last:
            raise TurnLostError(f"{self._other.stem} has changed jobs meanwhile, so they are read again first")
        if self._clock.monotonic() - self._renewed_s > _RENEW_S:
            self._set(_BUSY)

    async def _begin(self) -> bool:
        """Wait until the other has no turn, and begin one. Returns whether the other had one since the last turn of this.

        The wait is bounded by the other's signs of life. A process that gives way waits for some times `lasts_s` at most, because
        a controller that is always busy, and never succeeds, must not keep jobs held.
        """
        until_s = self._clock.monotonic() + _PATIENCE * self._lasts_s
        while True:
            late = self._gives_way and self._clock.monotonic() >= until_s
            if late or not self._gives_way or not self._other_is_busy():
                self._set(_WAITING)
                if late or not self._other_is_busy():
                    break
                if self._gives_way:  # both have begun to wait at the same time
                    self._set(_OVER)
            await self._clock.sleep(_LOOK_S)
        self._newest = f"{os.getpid()}:{self._clock.monotonic()!r}"
        self._set(_BUSY)
        before, self._others_last = self._others_last, _newest(_read(self._other))
        return before != self._others_last

    def _other_is_busy(self) -> bool:
        """Return whether the other has a turn or waits for one: its process lives, and has shown that within `lasts_s`."""
        words = _read(self._other).split()
        with suppress(ValueError, OverflowError, IndexError):
            if words[0] != _OVER and abs(self._clock.monotonic() - float(words[2])) <= self._lasts_s:
                return _lives(int(words[1]))
        return False

    def _set(self, state: str) -> None:
        """Write the state, and that this process lives."""
        if state == self._state == _OVER:
            return
        self._state = state
        self._renewed_s = self._clock.monotonic()
        temporary = self._own.with_name(f".{self._own.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{state} {os.getpid()} {self._renewed_s!r} {self._newest}\n")
            temporary.replace(self._own)
        except OSError as error:
            if str(error) != self._problem:
                log.warning("turn_not_written", path=str(self._own), problem=str(error))
            self._problem = str(error)


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _newest(text: str) -> str:
    """Return what tells the newest turn of a process, over or not, from all others. A wait for a turn does not change it."""
    return "".join(text.split()[3:4])


def _lives(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
