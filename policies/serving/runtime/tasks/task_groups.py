"""Short tasks that end with their owner: several of which the first that ends stops the others, and one for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

log = structlog.get_logger(__name__)

Work = Coroutine[Any, Any, object]
Failed = Callable[[BaseException], None]
"""Is called with the error of each task that fails."""


def uncounted(_error: BaseException) -> None:
    """Do nothing: a command ends, so it has no count to show."""


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Run tasks within an asyncio.TaskGroup. Raises the first error by itself, so that callers can catch it by its type.

    Where a task fails in the same turn of the loop in which the group's owner is cancelled, this raises CancelledError. Before
    Python 3.13 a TaskGroup raises the error, and the cancellation is lost: an owner that tries again would never end.
    """
    owner = asyncio.current_task()
    requests = owner.cancelling() if owner is not None else 0
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as several:
        if owner is not None and owner.cancelling() > requests:
            raise asyncio.CancelledError from several.exceptions[0]
        error = several.exceptions[0]
        raise error from error.__cause__


async def first_of(*work: Work) -> None:
    """Run all at once until one of them ends, and cancel the others.

    Raises what the first one raised that failed; CancelledError when one of them was cancelled by others. When it returns or
    raises, all have ended.
    """
    async with task_group() as group:
        tasks = [group.create_task(each) for each in work]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    if any(task.cancelled() for task in done):
        raise asyncio.CancelledError


class Handlers:
    """Tasks of one owner, each of which serves one connection or one call.

    Invariant: a task that fails or is cancelled is logged and counted by `failed`, unless `close` ended it, and costs its own
    connection alone. After `close` none runs.
    """

    def __init__(self, name: str, failed: Failed = uncounted) -> None:
        """`failed` counts the failures; Tasks.counting shows them to operators."""
        self._name = name
        self._failed = failed
        self._tasks: set[asyncio.Task[object]] = set()
        """Bound: the open connections or calls."""
        self._closing = False

    def begin(self, work: Work, broken: Callable[[], object]) -> None:
        """Run `work`. `broken` is called if it fails or is cancelled, also before its first step, where it can catch nothing."""

        def ended(task: asyncio.Task[object]) -> None:
            self._tasks.discard(task)
            problem = asyncio.CancelledError("cancelled by others") if task.cancelled() else task.exception()
            if problem is None:
                return
            if not self._closing:
                log.error("connection_failed", task=self._name, problem=repr(problem))
                self._failed(problem)
            broken()

        task = asyncio.get_running_loop().create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def close(self) -> None:
        """Cancel all, and wait until they have ended."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
