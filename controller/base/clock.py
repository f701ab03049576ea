"""Clocks of the controller: the real one, and a virtual one on which a day of queue passes in milliseconds.

Code that waits does so through a `Clock` given to its constructor. Under a virtual clock it is deterministic: time stands
still while a task can run, and jumps to the next sleeper when none can.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

from policies.serving.runtime.tasks.task_groups import first_of

T = TypeVar("T")

_BLIND_YIELDS = 50
"""Turns after which the event loop counts as idle, where it does not show its queue (uvloop)."""
_MAX_YIELDS = 100_000
"""Turns after which tasks that never wait count as a bug."""
_REAL_WAIT_S = 0.005
"""Real time to wait for I/O when no sleeper is left to jump to, seconds."""


@runtime_checkable
class Clock(Protocol):
    """The present time, and a way to wait."""

    def now(self) -> float:
        """Seconds since the Unix epoch; jumps when the clock is set."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back and never jumps. For durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds on this clock; zero or less only lets other tasks run."""


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back and never jumps."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await asyncio.sleep(max(seconds, 0.0))


class VirtualClock:
    """A clock that is moved by hand (`advance`) or by itself (`run`). Invariant: it never goes back.

    Sleepers wake in the order of their times (ties: in the order in which they went to sleep), and all tasks that one starts
    wait or have ended before the next wakes. `io_grace_s` is real time granted, before each jump, to work that the event
    loop cannot see: threads, sockets.
    """

    def __init__(self, start_s: float = 1_700_000_000.0, *, io_grace_s: float = 0.0) -> None:
        self._now_s = start_s
        self._io_grace_s = io_grace_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        """Bound: the tasks that sleep, in tests and simulations."""
        self._sequence = itertools.count()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._now_s

    def monotonic(self) -> float:
        """Seconds since the Unix epoch: this clock is never set, so it is monotonic."""
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved on by so many seconds."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._sequence), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the clock on by so many seconds, and wake sleepers on the way, each at its time."""
        until_s = self._now_s + seconds
        await self._settle()
        while (next_s := self._next_wake_s()) is not None and next_s <= until_s:
            self._wake_next()
            await self._settle()
        self._now_s = max(self._now_s, until_s)
        await self._settle()

    async def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, jumping from sleeper to sleeper whenever nothing else can run."""
        task = asyncio.ensure_future(main)
        try:
            while not task.done():
                await self._settle()
                if task.done():
                    break
                if self._next_wake_s() is None:
                    await asyncio.wait({task}, timeout=_REAL_WAIT_S)
                else:
                    self._wake_next()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return task.result()

    def _next_wake_s(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():  # cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_next(self) -> None:
        wake_s, _, woken = heapq.heappop(self._sleepers)
        self._now_s = max(self._now_s, wake_s)
        woken.set_result(None)

    async def _settle(self) -> None:
        """Return when every task waits for time, or for something outside the event loop."""
        await _until_idle()
        if self._io_grace_s:
            await asyncio.sleep(self._io_grace_s)
            await _until_idle()


async def _until_idle() -> None:
    ready = getattr(asyncio.get_running_loop(), "_ready", None)  # the stock loop's queue; no public way to ask
    if ready is None:
        for _ in range(_BLIND_YIELDS):
            await asyncio.sleep(0)
        return
    for _ in range(_MAX_YIELDS):
        await asyncio.sleep(0)
        if not ready:
            return
    raise RuntimeError("a task keeps running without ever waiting: virtual time cannot pass")


async def wait_for_event(clock: Clock, event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for the event, at most so many seconds on that clock. Returns whether it is set."""
    if event.is_set():
        return True
    await first_of(event.wait(), clock.sleep(timeout_s))
    return event.is_set()
