"""A thread that ends faults when their time has come, and that looks after the processes meanwhile."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.1


class Healer(threading.Thread):
    """Runs calls later. Invariant: no two calls run at the same time, nor beside a caller that holds `lock`.

    A thread, because the command of a user waits while slurmctld is stopped, and the end of that stop must not wait for it.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(name="healer", daemon=True)
        self.lock = threading.RLock()
        self.problems: list[str] = []
        """Calls that failed, with the reason: faults of the campaign itself."""
        self._look = look
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._ended = threading.Event()

    def later(self, after_s: float, call: Callable[[], None]) -> None:
        """Run `call` after so many seconds, or in `heal_all` if that comes first."""
        with self.lock:
            heapq.heappush(self._due, (time.monotonic() + after_s, next(self._numbers), call))

    def heal_all(self) -> None:
        """Run every call that is left, now."""
        with self.lock:
            while self._due:
                self._run_first()

    def run(self) -> None:
        """Run calls when they are due, until `end`."""
        while not self._ended.wait(_LOOK_EVERY_S):
            with self.lock:
                while self._due and self._due[0][0] <= time.monotonic():
                    self._run_first()
                self._guarded(self._look)

    def end(self) -> None:
        """End the thread; calls that are left do not run."""
        self._ended.set()
        self.join()

    def _run_first(self) -> None:
        _, _, call = heapq.heappop(self._due)
        self._guarded(call)

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a thread that ended would leave every later fault as it is
            self.problems.append(f"{type(error).__name__}: {error}")
