"""One thread that does one piece of work at a time for an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog

from policies.serving.runtime.tasks.settle import settle

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


class Worker:
    """A daemon thread with a queue.

    Unlike a thread of an executor, it does not keep the process from ending when it hangs. Invariant: work whose caller was
    cancelled before its turn is dropped at once, so that callers with a deadline queue nothing up behind a call that hangs.
    """

    def __init__(self, name: str, between: Callable[[], object] = lambda: None) -> None:
        """`between` is called after each piece of work, when its answer is sent; it must not raise."""
        self._between = between
        self._waiting: dict[Future[Any], Callable[[], Any]] = {}
        """Work by the future of its result, oldest first. Bound: the callers that wait."""
        self._changed = threading.Condition()
        self._ending = False
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def busy_s(self) -> float:
        """Seconds since it began the present piece of work; 0 when idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    async def run(self, work: Callable[[], Result]) -> Result:
        """Queue the work and return its result. Raises what the work raises."""
        return await self.submit(work)

    def submit(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Queue the work, and return the future of its result. If that is cancelled before its turn, the work is dropped."""
        future: Future[Result] = Future()
        self._put(future, work)
        future.add_done_callback(self._drop)
        return asyncio.wrap_future(future)

    def end(self, last: Callable[[], object] = lambda: None) -> None:
        """Take no more work: the thread ends when it has done the queued work, and `last`, which must not raise.

        `last` can close objects that only this thread may use. The thread may still be busy with the work of a cancelled caller.
        """
        self._put(Future(), last, ending=True)

    def _put(self, future: Future[Any], work: Callable[[], Any], *, ending: bool = False) -> None:
        with self._changed:
            if not self._ending:
                self._waiting[future] = work
                self._ending = ending
                self._changed.notify()

    def _drop(self, future: Future[Any]) -> None:
        with self._changed:
            self._waiting.pop(future, None)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for work and return it; None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            if not self._waiting:
                return None
            future = next(iter(self._waiting))
            return future, self._waiting.pop(future)

    def _work(self) -> None:
        while (item := self._next()) is not None:
            future, work = item
            self._busy_since = time.monotonic()
            settle(future, work)
            self._busy_since = None
            del future, work, item  # so that what they hold is garbage now, and not only at the next piece of work
            try:
                self._between()
            except Exception:  # a thread that ended would leave every later caller waiting
                log.exception("between_failed", thread=self._thread.name)
