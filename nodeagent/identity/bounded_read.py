"""Reading what a user's process may make slow: in a thread beside, for a bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_WITHIN_S = 0.1
_MOST_HUNG = 32
_QUICK_S = 0.01
"""A reading that takes no longer is no user's fault: usual ones take a fifth of a millisecond."""
_SLOW_S = 0.25
"""Time that the slow readings of one user may take at once."""
_SLOW_PER_S = 0.02
"""And for long, in each second."""


class ReadDeferredError(TimeoutError):
    """Nothing was read, and that is no fault of what was to be read: ask again later."""


class BoundedReader:
    """Invariant: a call returns within `within_s`; slow ones of one user take `slow_s` at once and a fiftieth of the time for
    long, together; and at most one thread for each user, and `most_hung` in all, wait for what may never come.

    A process's environment is read from its own memory, and the kernel waits for that: a user who puts it on a file system that
    does not answer, or answers each reading just in time, would stop the agent for good, or for seconds in each turn.
    """

    def __init__(
        self,
        within_s: float = _WITHIN_S,
        most_hung: int = _MOST_HUNG,
        slow_s: float = _SLOW_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._within_s = within_s
        self._most_hung = most_hung
        self._slow_s = slow_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._hung: set[int] = set()
        """Uids."""
        self._slow: dict[int, tuple[float, float]] = {}
        """By uid: time that slow readings have taken, less what has been forgiven, as of when."""

    def call(self, uid: int, work: Callable[[], T]) -> T:
        """What it gives, or raises. Raises TimeoutError, an OSError, when that takes too long, or hangs already for that user;
        NotReadError when too many others hang, or the user's readings have taken too long lately."""
        if uid in self._hung:
            raise TimeoutError(f"a reading of uid {uid} hangs")
        if len(self._hung) >= self._most_hung:
            raise ReadDeferredError(f"readings of {len(self._hung)} users hang")
        begun_s = self._monotonic()
        if self._taken_s(uid, begun_s) >= self._slow_s:
            raise ReadDeferredError(f"readings of uid {uid} have taken too long lately")
        try:
            return self._in_a_thread(uid, work)
        finally:
            self._count(uid, begun_s)

    def _taken_s(self, uid: int, now_s: float) -> float:
        taken_s, at_s = self._slow.get(uid, (0.0, now_s))
        return max(taken_s - (now_s - at_s) * _SLOW_PER_S, 0.0)

    def _count(self, uid: int, begun_s: float) -> None:
        now_s = self._monotonic()
        if now_s - begun_s > _QUICK_S:
            self._slow[uid] = self._taken_s(uid, now_s) + (now_s - begun_s), now_s
        elif uid in self._slow and self._taken_s(uid, now_s) == 0:
            del self._slow[uid]

    def _in_a_thread(self, uid: int, work: Callable[[], T]) -> T:
        found = _Found(uid, work)
        threading.Thread(target=self._carry_out, args=(found,), name="aside", daemon=True).start()
        if not found.done.wait(self._within_s):
            with self._lock:
                if not found.done.is_set():
                    found.given_up = True
                    self._hung.add(uid)
                    raise TimeoutError(f"no answer within {self._within_s:g} s")
        if found.error is not None:
            raise found.error
        return found.values[0]

    def _carry_out(self, found: _Found[T]) -> None:
        try:
            found.values.append(found.work())
        except Exception as error:  # noqa: BLE001 - it is raised where the call was made
            found.error = error
        with self._lock:
            found.done.set()
            if found.given_up:
                self._hung.discard(found.uid)


class _Found(Generic[T]):
    """One call."""

    def __init__(self, uid: int, work: Callable[[], T]) -> None:
        self.uid = uid
        self.work = work
        self.done = threading.Event()
        self.values: list[T] = []
        self.error: Exception | None = None
        self.given_up = False
