"""An event loop whose clock jumps: hours of timers pass in milliseconds, and every run of a seed is the same run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from controller.base.clock import Clock

_THREAD_WAIT_S = 0.001
"""Real seconds between two looks for a thread's answer."""
_DEADLOCK_S = 20.0
"""Real seconds without a timer, a thread or input after which the run counts as a deadlock."""


class DeadlockError(RuntimeError):
    """No task can ever run again."""


class _JumpingSelector(selectors.DefaultSelector):
    """Selector that never waits for time. Input that is there already comes before time passes."""

    jump: Callable[[float | None], float]
    """Move the clock on by a time limit (None = no timer is set); the real seconds to wait for input instead, 0 after a jump."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        wait_s = self.jump(timeout)
        return super().select(wait_s) if wait_s else ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Invariant: `time` moves only when no callback is ready and no thread works; then it moves to the next timer."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        self._threads = 0
        self._stuck_s = 0.0
        selector = _JumpingSelector()
        selector.jump = self._jump
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual_s

    def pass_over(self, seconds: float) -> None:
        """Move the clock on at once, without letting anything run meanwhile, as if the machine had been suspended."""
        self._virtual_s += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Run the function as any loop does; time stops until the thread has answered."""
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Leave the generators of killed processes as they are, so that none of their code runs."""

    def _thread_done(self, _future: Any) -> None:
        self._threads -= 1

    def _jump(self, timeout: float | None) -> float:
        if self._threads:
            return _THREAD_WAIT_S
        if timeout is None:
            self._stuck_s += _THREAD_WAIT_S
            if self._stuck_s > _DEADLOCK_S:
                raise DeadlockError("every task waits for something that no timer, thread or input will bring")
            return _THREAD_WAIT_S
        self._stuck_s = 0.0
        self._virtual_s += timeout
        return 0.0


class LoopClock:
    """The time of a virtual loop as a `Clock`. `offset_s` is the error of the machine's clock."""

    def __init__(self, loop: VirtualLoop, start_s: float = 1_700_000_000.0) -> None:
        self._loop = loop
        self._start_s = start_s
        self.offset_s = 0.0

    def now(self) -> float:
        """Seconds since the Unix epoch; jumps when `offset_s` is changed."""
        return self._start_s + self._loop.time() + self.offset_s

    def monotonic(self) -> float:
        """Seconds since the loop began; never jumps."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await asyncio.sleep(max(seconds, 0.0))


def _is_a_clock(clock: LoopClock) -> Clock:
    """Let mypy check the protocol."""
    return clock
