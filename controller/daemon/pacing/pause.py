"""The pause between two readings of Slurm: it ends early at an event, and jobs that have saved are stopped meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from controller.base.clock import Clock
from controller.cycle.view.health import Health
from controller.daemon.pacing.intervals import Intervals
from controller.daemon.pacing.pace import Pace, let_burst_end
from controller.daemon.pacing.wake_pipe import WakePipe, Woken
from policies.serving.runtime.tasks.task_groups import task_group

READ_AFTER_WAKE_S = 0.01
"""Delay of a reading after a wake-up, because job_submit.lua writes just before the job exists."""


class Pause:
    """Waits between readings. Invariant: two readings never begin less than `Intervals.least_s` apart."""

    def __init__(
        self, health: Health, intervals: Intervals, clock: Clock, stop: asyncio.Event, jobs_wait: Callable[[], bool]
    ) -> None:
        """`jobs_wait` returns whether jobs wait for free nodes. `stop` ends every pause."""
        self._health = health
        self._intervals = intervals
        self._clock = clock
        self._stop = stop
        self._jobs_wait = jobs_wait
        self._pace = Pace()
        self._missing = False

    def reading_begins(self) -> None:
        """Note that a reading begins now."""
        self._pace.taken(self._clock.monotonic())

    def note_missing(self, *, missing: bool) -> None:
        """Note whether the last reading lacked a job that was announced."""
        self._missing = missing

    async def wait(
        self, wake: WakePipe, longest_s: float, ordered: asyncio.Event, carry_out: Callable[[], Awaitable[None]]
    ) -> None:
        """Wait for the next reading. Whenever `ordered` is set, call `carry_out` at once, because ranks that have saved are
        paused."""
        async with task_group() as group:
            pause = group.create_task(self._wait(wake, longest_s), name="pause")
            while not pause.done():
                order = group.create_task(ordered.wait(), name="order")
                await asyncio.wait({pause, order}, return_when=asyncio.FIRST_COMPLETED)
                order.cancel()
                if not pause.done():
                    await carry_out()

    async def _wait(self, wake: WakePipe, longest_s: float) -> None:
        """Wait until an event or the end of the time, but at least as long as `Pace` requires."""
        if self._health.slurm_away:
            await self._sleep_unless_stopped(longest_s)
            return
        await wake.wait(longest_s)
        if not self._missing:
            apart_s = self._intervals.least_s if self._jobs_wait() else self._intervals.leisure_s
            due_s = self._pace.wait_s(self._clock.monotonic(), apart_s)
            await wake.wait(due_s, self._is_urgent)
        soonest_s = self._pace.wait_s(self._clock.monotonic(), self._intervals.least_s)
        await self._sleep_unless_stopped(max(soonest_s, READ_AFTER_WAKE_S))
        await let_burst_end(lambda: wake.so_far.submitted, self._sleep_unless_stopped)

    def _is_urgent(self, woken: Woken) -> bool:
        """Return whether a user submitted or held a job, or jobs wait for nodes that have just become free."""
        return bool(woken.submitted or woken.user_holds or (woken.ended and self._jobs_wait()))

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._stop.wait()
