"""Background tasks under supervision: a task that fails is logged, counted and begun again, or ends the program."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import structlog

from policies.serving.runtime.tasks.backoff import Backoff
from policies.serving.runtime.tasks.task_groups import task_group

log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STEADY_S = 120.0
"""Seconds after which a running task counts as healthy: its next failure is the first of a new streak."""
TROUBLE_S = 3600.0
"""Seconds for which a failed task is reported to operators. A failure is a defect, also when the task runs again."""
_MOST_CHARACTERS = 300

Work = Callable[[], Awaitable[None]]
"""Begins the task's work; called again after a failure."""
OnFatal = Callable[[Exception], None]
"""Called when a task fails that the program cannot do without: it ends the program."""


def cancelled_by_others() -> bool:
    """Return whether a CancelledError just caught was not meant for this task: something that it waited for was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


def is_own_end(error: BaseException) -> bool:
    """Return whether an error just caught is the cancellation of this task itself, which must be raised again."""
    return isinstance(error, asyncio.CancelledError) and not cancelled_by_others()


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The newest failure of one task."""

    task: str
    failures: int
    """Failures since the start of the program."""
    in_a_row: int
    """Failures one soon after the other, with this one."""
    time_s: float
    """Unix time."""
    problem: str

    def __str__(self) -> str:
        times = f"{self.in_a_row} time{'s' if self.in_a_row > 1 else ''} in a row"
        when = datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="seconds")
        return f"task {self.task} failed {times}, last at {when} with {self.problem}"


@dataclass(slots=True)
class _Scope:
    """The context in which a task runs."""

    ending: bool = False
    """The context has ended the task."""


class Tasks:
    """The background tasks of one program, each in an asyncio.TaskGroup of its own.

    Invariant: until its context ends, a task whose work raises, ends although it should not, or is cancelled by other code,
    is counted in `failures` and begun again. The pause before doubles up to a minute, and is shortened at random, by half at
    most. The first of a streak of failures is logged, and each whose problem is another than that before. A task with `failed`
    is not begun again: `failed` is called, and ends the program.
    """

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self.failures: Counter[str] = Counter()
        """Number of failures since the start, by task. Names of tasks that have not failed are there with 0.
        Bound: the names of tasks, which are constants."""
        self.last: dict[str, TaskFailure] = {}
        """The newest failure of each task that has failed. Bound: as many."""
        self._sleep = sleep
        self._monotonic = monotonic
        self._now = now
        self._rng = random.Random() if rng is None else rng  # noqa: S311 - spreads restarts, keeps no secret

    @property
    def recent(self) -> tuple[TaskFailure, ...]:
        """The newest failure of each task that failed within the last hour."""
        now_s = self._now()
        return tuple(each for each in dict(self.last).values() if now_s - each.time_s <= TROUBLE_S)

    @property
    def troubles(self) -> tuple[str, ...]:
        """A sentence for each task that failed within the last hour, for operators."""
        return tuple(map(str, self.recent))

    def counting(self, name: str) -> Callable[[BaseException], None]:
        """Return a function that counts a failure of tasks of that name that are not begun again: each serves one connection."""
        self.failures[name] += 0
        return partial(self._count, name)

    def _count(self, name: str, error: BaseException) -> None:
        self.failures[name] += 1
        before, now_s = self.last.get(name), self._now()
        in_a_row = before.in_a_row + 1 if before is not None and now_s - before.time_s < STEADY_S else 1
        self.last[name] = TaskFailure(name, self.failures[name], in_a_row, now_s, _problem(error))

    @asynccontextmanager
    async def running(
        self, name: str, work: Work, *, may_end: bool = False, failed: OnFatal | None = None
    ) -> AsyncIterator[None]:
        """Run the task within. `may_end`: a normal return is its end. `failed`: the program cannot do without the task."""
        self.failures[name] += 0
        scope = _Scope()
        async with task_group() as group:
            task = group.create_task(self._keep(name, work, scope, may_end=may_end, failed=failed), name=name)
            try:
                yield
            finally:
                scope.ending = True
                task.cancel()

    async def _keep(self, name: str, work: Work, scope: _Scope, *, may_end: bool, failed: OnFatal | None) -> None:
        while True:
            begun_s = self._monotonic()
            problem: Exception
            try:
                await work()
                if may_end or scope.ending:
                    return
                problem = RuntimeError("it ended, although it should go on")
            except asyncio.CancelledError:
                if scope.ending:
                    raise
                _take_back_cancellation()
                problem = RuntimeError("it was cancelled, or something that it waited for was")
            except Exception as error:  # noqa: BLE001 - every error is counted, and the task continues
                problem = error
            pause_s = self._note(name, problem, begun_s, vital=failed is not None)
            if scope.ending:  # it failed while it was ended; the context waits for it
                return
            if failed is not None:
                failed(problem)
                return
            await self._pause(pause_s, scope)

    async def _pause(self, seconds: float, scope: _Scope) -> None:
        try:
            await self._sleep(seconds)
        except asyncio.CancelledError:
            if scope.ending:
                raise
            _take_back_cancellation()  # the task is begun again at once

    def _note(self, name: str, problem: Exception, begun_s: float, *, vital: bool) -> float:
        """Count a failure. Returns the pause before the task is begun again, seconds."""
        self.failures[name] += 1
        before = self.last.get(name)
        streak = before is not None and self._monotonic() - begun_s < STEADY_S
        number = before.in_a_row + 1 if before is not None and streak else 1
        text = _problem(problem)
        self.last[name] = TaskFailure(name, self.failures[name], number, self._now(), text)
        pause_s = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S).pause_s(number - 1) * self._rng.uniform(0.5, 1.0)
        if number == 1 or before is None or before.problem != text:
            again_in_s = None if vital else round(pause_s, 1)
            log.error("task_failed", task=name, problem=text, again_in_s=again_in_s, exc_info=problem)
        return pause_s


def _problem(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]


def _take_back_cancellation() -> None:
    """Let the present task continue after a cancellation that its owner did not ask for."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
