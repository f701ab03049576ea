"""One thread that does one thing at a time for an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class Worker:
    """A daemon thread with a queue.

    Unlike the threads of an executor, one that hangs does not keep the process from ending. Work whose caller went away
    before its turn is dropped.
    """

    def __init__(self, name: str, between: Callable[[], object] = lambda: None) -> None:
        """`between` is called after each piece of work, when its answer is out; it must not raise."""
        self._between = between
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def busy_s(self) -> float:
        """For how long it has been at the piece of work it is at; 0 when idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    async def run(self, work: Callable[[], Result]) -> Result:
        """Have it done in turn. Raises what the work raises."""
        future: Future[Result] = Future()
        self._queue.put((future, work))
        return await asyncio.wrap_future(future)

    def end(self, last: Callable[[], object] = lambda: None) -> None:
        """No more work: the thread ends when it has done what is in the queue, and `last`, which must not raise.

        What only this thread may touch is closed so. A caller that was cancelled has left behind what it asked for: the thread
        may still be at it.
        """
        future: Future[object] = Future()
        self._queue.put((future, last))
        self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            self._busy_since = time.monotonic()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)
            except BaseException as error:  # noqa: BLE001 - SystemExit in a worker must not end the event loop
                future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            finally:
                self._busy_since = None
            del future, work, item  # what they hold is garbage now, not only when the next piece of work comes
            self._between()
