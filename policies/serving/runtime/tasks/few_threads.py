"""A few threads for calls that may hang, such as look-ups in a name service that does not answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from policies.serving.runtime.tasks.settle import settle

Result = TypeVar("Result")

_IDLE_S = 60.0
"""Time after which a thread without work ends, seconds."""


class BusyError(TimeoutError):
    """The call was not begun in time, because all threads are busy with other calls, or none can be started."""


class FewThreads:
    """Daemon threads that are started when they are needed.

    Invariant: there are at most `most` threads, however many calls hang, and no caller waits for longer than `within_s`. While all
    threads have been busy with the same calls for that time, further calls are refused at once. The threads of the event loop's
    own executor stay free for calls that end, and a call that hangs does not keep the process from ending.
    """

    def __init__(self, name: str, most: int, within_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`name` is that of the threads."""
        self._name = name
        self._most = most
        self._within_s = within_s
        self._monotonic = monotonic
        self._changed = threading.Condition()
        """Guards the fields below."""
        self._threads = 0
        """Number of threads, at most `most`."""
        self._busy: dict[int, float] = {}
        """Threads at work, with the time at which each began its present call. Bound: `most`."""
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        """Calls that were not begun. Bound: the callers that wait within `within_s`, since calls are refused afterwards."""

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run the work in one of the threads and return its result.

        Raises what the work raises, and TimeoutError when it takes too long; then it goes on in its thread. BusyError is raised
        when it was not begun, and never will be.
        """
        future: Future[Result] = Future()
        self._put(future, work)
        try:
            async with asyncio.timeout(self._within_s) as limit:
                # By way of the loop, so that one with a clock of its own knows that a thread is at work.
                return await asyncio.get_running_loop().run_in_executor(_Queued(future), work)
        except TimeoutError as error:
            if future.cancelled():
                raise self._too_busy() from error
            if limit.expired():
                raise TimeoutError(f"no answer within {self._within_s:g} s") from error
            raise

    def _put(self, future: Future[Any], work: Callable[[], Any]) -> None:
        with self._changed:
            while self._waiting and self._waiting[0][0].cancelled():
                self._waiting.popleft()
            if len(self._busy) == self._most and self._monotonic() - max(self._busy.values()) > self._within_s:
                raise self._too_busy()
            self._waiting.append((future, work))
            if len(self._waiting) > self._threads - len(self._busy) and self._threads < self._most:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        """Start a thread for the newest call. If that fails, the threads that there are will do it; without any it is refused."""
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._threads += 1
        except (RuntimeError, MemoryError) as error:  # the machine or the service has as many threads as it may
            if not self._threads:
                self._waiting.pop()  # otherwise it would be done at some later time, without a caller
                raise BusyError(f"no thread can be started for such calls: {error}") from error

    def _too_busy(self) -> BusyError:
        return BusyError(f"all {self._most} threads for such calls are busy")

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Return the next call for the present thread; None: it has to end."""
        with self._changed:
            self._busy.pop(threading.get_ident(), None)
            if not self._changed.wait_for(lambda: bool(self._waiting), _IDLE_S):
                self._threads -= 1
                return None
            self._busy[threading.get_ident()] = self._monotonic()
            return self._waiting.popleft()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            future, work = item
            settle(future, work)
            del future, work, item  # so that what they hold is garbage now, and not only at the next call


class _Queued(Executor):
    """Executor of one call that is queued already."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        """Return the future of the call."""
        return self._future
