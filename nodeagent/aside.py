"""Reading what a user's process may make slow: in a thread beside, for a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_WITHIN_S = 0.1
_MOST_HUNG = 32


class Aside:
    """Invariant: a call returns within `within_s`, and at most one thread for each user, and `most_hung` in all, wait for what
    may never come.

    A process's environment is read from its own memory, and the kernel waits for that: a user who puts it on a file system that
    does not answer would stop the agent for good.
    """

    def __init__(self, within_s: float = _WITHIN_S, most_hung: int = _MOST_HUNG) -> None:
        self._within_s = within_s
        self._most_hung = most_hung
        self._lock = threading.Lock()
        self._hung: set[int] = set()
        """Uids."""

    def call(self, uid: int, work: Callable[[], T]) -> T:
        """What it gives, or raises. Raises TimeoutError, an OSError, when that takes too long, or hangs already for that user."""
        if uid in self._hung or len(self._hung) >= self._most_hung:
            raise TimeoutError(f"a reading hangs, of uid {uid} or too many others")
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
