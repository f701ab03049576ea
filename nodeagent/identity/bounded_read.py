"""Reads that a user's process can make slow: each in a thread of its own, for a bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from policies.serving.runtime.tasks.token_bucket import TokenBucket

T = TypeVar("T")

_TIMEOUT_S = 0.1
_MAX_HUNG = 32
_QUICK_S = 0.01
"""A read that takes no longer is not counted: a usual one takes a fifth of a millisecond."""
_SLOW_S = 0.25
"""Total time of slow reads for one user at once."""
_MAX_SLOW = 256
_SLOW_PER_S = 0.02
"""Time of slow reads for one user in each second, for long."""


class ReadDeferredError(TimeoutError):
    """The read was not tried, for reasons that lie elsewhere; try again later."""


class ReadHangsError(TimeoutError):
    """The read was not tried, because another one for the same user hangs."""


class BoundedReader:
    """Runs reads that may hang.

    Invariant: a call returns within `timeout_s`; the slow reads of one user together take `slow_s` at once and a fiftieth of the
    time for long; at most one thread for each user, and `max_hung` in all, wait for a read that may never end.

    The environment of a process is read from its memory, and the kernel waits for that memory: a user who maps it from a file
    system that does not answer, or answers each read just in time, could stop the agent for good, or for seconds in each turn.
    """

    def __init__(
        self,
        timeout_s: float = _TIMEOUT_S,
        max_hung: int = _MAX_HUNG,
        slow_s: float = _SLOW_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_s = timeout_s
        self._max_hung = max_hung
        self._slow_s = slow_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._hung: set[int] = set()
        """Uids. Bound: `max_hung`."""
        self._slow: dict[int, TokenBucket] = {}
        """Seconds by uid: users with slow reads lately, and at most _MAX_SLOW others.
        Bound: `_MAX_SLOW`, and the users with slow reads lately."""

    def call(self, uid: int, work: Callable[[], T]) -> T:
        """Return or raise what `work` does.

        Raises TimeoutError, an OSError, when that takes too long, which need not be the user's fault: on a machine that is short of
        cores the thread may have had none. ReadHangsError when a read for this user hangs already; ReadDeferredError when too many
        reads for other users hang, or those for this user have taken too long lately.
        """
        if uid in self._hung:
            raise ReadHangsError(f"a read for uid {uid} hangs")
        if len(self._hung) >= self._max_hung:
            raise ReadDeferredError(f"reads for {len(self._hung)} users hang")
        started_s = self._monotonic()
        if uid in self._slow and self._slow[uid].left(started_s) <= 0:
            raise ReadDeferredError(f"reads for uid {uid} have taken too long lately")
        try:
            return self._in_a_thread(uid, work)
        finally:
            self._count(uid, started_s)

    def _count(self, uid: int, started_s: float) -> None:
        now_s = self._monotonic()
        # A read is waited for no longer; if it took longer, the agent itself was stopped meanwhile.
        taken_s = min(now_s - started_s, self._timeout_s)
        if taken_s > _QUICK_S:
            if len(self._slow) >= _MAX_SLOW:  # users who never come again
                self._slow = {each: left for each, left in self._slow.items() if left.left(now_s) < self._slow_s}
            bucket = self._slow.setdefault(uid, TokenBucket(_SLOW_PER_S, self._slow_s, started_s))
            bucket.spend(now_s, taken_s)
        elif uid in self._slow and self._slow[uid].left(now_s) >= self._slow_s:
            del self._slow[uid]

    def _in_a_thread(self, uid: int, work: Callable[[], T]) -> T:
        call = _Call(uid, work)
        threading.Thread(target=self._run, args=(call,), name="bounded-read", daemon=True).start()
        if not call.done.wait(self._timeout_s):
            with self._lock:
                if not call.done.is_set():
                    call.abandoned = True
                    self._hung.add(uid)
                    raise TimeoutError(f"no answer within {self._timeout_s:g} s")
        if call.error is not None:
            raise call.error
        return call.values[0]

    def _run(self, call: _Call[T]) -> None:
        try:
            call.values.append(call.work())
        except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
            call.error = error
        with self._lock:
            call.done.set()
            if call.abandoned:
                self._hung.discard(call.uid)


class _Call(Generic[T]):
    def __init__(self, uid: int, work: Callable[[], T]) -> None:
        self.uid = uid
        self.work = work
        self.done = threading.Event()
        self.values: list[T] = []
        """Bound: one."""
        self.error: Exception | None = None
        self.abandoned = False
