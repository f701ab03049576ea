"""The tasks that wait for a decision at each scheduler in one interval."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class Task(NamedTuple):
    """One worker or parameter server to be placed."""

    job: int
    column: int
    """Its column among the tasks of the job."""
    forwards: int
    """Times that it was forwarded."""


class Queues:
    """Tasks of each scheduler in the order of their decisions."""

    def __init__(self, schedulers: int) -> None:
        self._of: list[deque[Task]] = [deque() for _ in range(schedulers)]

    def add(self, scheduler: int, tasks: Iterable[Task]) -> None:
        """Add tasks behind the others of a scheduler."""
        self._of[scheduler].extend(tasks)

    def head(self, scheduler: int) -> Task | None:
        """Return the task that a scheduler decides on next; None if there is none."""
        queue = self._of[scheduler]
        return queue[0] if queue else None

    def pop(self, scheduler: int) -> Task:
        """Remove the first task of a scheduler, and return it."""
        return self._of[scheduler].popleft()

    def drop(self, job: int) -> list[int]:
        """Remove all tasks of a job; return the schedulers that had any."""
        found = [number for number, queue in enumerate(self._of) if any(task.job == job for task in queue)]
        for number in found:
            self._of[number] = deque(task for task in self._of[number] if task.job != job)
        return found

    def jobs(self, scheduler: int) -> set[int]:
        """Return the jobs that have tasks at a scheduler."""
        return {task.job for task in self._of[scheduler]}

    @property
    def is_empty(self) -> bool:
        """True if no scheduler has a task."""
        return not any(self._of)
