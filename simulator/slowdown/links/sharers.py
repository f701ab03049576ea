"""The jobs that have shared a link with another job."""

from __future__ import annotations


class Sharers:
    """Rows of the jobs that have shared a link. A copy takes time in proportion to the running jobs, however long the run was.

    Invariant: `_running` are those that run; `_left` are those that have stopped since this copy was made, and `_before` is what
    the original had then: its own `_before`, its `_left` (to which it goes on appending), and the number of entries that count.
    """

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._left: list[int] = []
        self._before: _Before | None = None

    def add(self, job: int) -> None:
        """Record that a running job shares a link."""
        self._running.add(job)

    def leave(self, job: int) -> None:
        """Record that a job has stopped."""
        if job in self._running:
            self._running.remove(job)
            self._left.append(job)

    def rows(self) -> set[int]:
        """Return all of them, running or not."""
        found = self._running.union(self._left)
        before = self._before
        while before is not None:
            before, left, count = before
            found.update(left[:count])
        return found

    def fork(self) -> Sharers:
        """Return an independent copy."""
        twin = Sharers()
        twin._running = self._running.copy()
        twin._before = (self._before, self._left, len(self._left)) if self._left else self._before
        return twin


_Before = tuple["_Before | None", list[int], int]
