"""Background tasks under supervision: a task that fails is logged, counted and restarted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STEADY_S = 120.0
"""Seconds after which a running task counts as healthy: its next failure is the first of a new streak."""

Work = Callable[[], Awaitable[None]]
"""Begins the task's work; called again after a failure."""


def cancelled_by_others() -> bool:
    """Return whether a CancelledError just caught was not meant for this task: something that it waited for was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


@dataclass(slots=True)
class _Streak:
    """Failures of one task, one soon after the other."""

    failures: int
    last_s: float
    problem: str

    @property
    def pause_s(self) -> float:
        """Seconds before the restart."""
        return min(FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 10), LONGEST_PAUSE_S)


class Tasks:
    """The background tasks of one program.

    Invariant: a task whose work raises, ends although it should not, or is cancelled by others is counted in `failures` and
    begun again after a pause that doubles up to a minute; of a streak of failures the first is logged. A task that is `vital`
    is not begun again: `failed` is called, and the program should end.
    """

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures: Counter[str] = Counter()
        """Number of failures since the start, by task. Names of tasks that have not failed are there with 0."""
        self._streaks: dict[str, _Streak] = {}
        self._sleep = sleep
        self._monotonic = monotonic

    @property
    def troubles(self) -> tuple[str, ...]:
        """A sentence for each task that failed lately, for operators."""
        now_s = self._monotonic()
        return tuple(
            f"task {name} failed {streak.failures} time{'s' if streak.failures > 1 else ''} in a row, last with {streak.problem}; "
            "it is begun again"
            for name, streak in dict(self._streaks).items()
            if now_s - streak.last_s <= STEADY_S
        )

    @asynccontextmanager
    async def running(
        self, name: str, work: Work, *, may_end: bool = False, failed: Callable[[Exception], None] | None = None
    ) -> AsyncIterator[None]:
        """Run the task within. `may_end`: a normal return is its end. `failed`: called when the task, which is vital, fails."""
        self.failures[name] += 0
        task = asyncio.create_task(self._keep(name, work, may_end=may_end, failed=failed), name=name)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, name: str, work: Work, *, may_end: bool, failed: Callable[[Exception], None] | None) -> None:
        while True:
            begun_s = self._monotonic()
            problem: Exception
            try:
                await work()
                if may_end:
                    return
                problem = RuntimeError("it ended, although it should go on")
            except asyncio.CancelledError:
                if not cancelled_by_others():
                    raise
                problem = RuntimeError("something that it waited for was cancelled")
            except Exception as error:  # noqa: BLE001 - every error is counted, and the task goes on
                problem = error
            streak = self._note(name, problem, begun_s, vital=failed is not None)
            if failed is not None:
                failed(problem)
                return
            await self._sleep(streak.pause_s)

    def _note(self, name: str, problem: Exception, begun_s: float, *, vital: bool) -> _Streak:
        now_s = self._monotonic()
        self.failures[name] += 1
        before = self._streaks.get(name)
        number = before.failures + 1 if before is not None and now_s - begun_s < STEADY_S else 1
        text = f"{type(problem).__name__}: {problem}"[:300]
        streak = self._streaks[name] = _Streak(number, now_s, text)
        if number == 1:
            again_in_s = None if vital else streak.pause_s
            log.error("task_failed", task=name, problem=text, again_in_s=again_in_s, exc_info=problem)
        return streak
