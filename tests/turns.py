"""Turns of the tests that compute: only a few do so at a time, however many processes run tests."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LOOKS_EVERY_S = 0.02


class Turns:
    """A number of turns that several processes share. A process that ends, in whatever way, gives its turn back.

    Tests on a real Slurm mostly wait, so eight processes keep two cores busy. But where tests that compute come together, as many
    of them at once evict each other from the caches, and each takes up to a third more CPU time than beside one other.
    """

    def __init__(self, path: str, most: int) -> None:
        """`path` names an empty file, the same in all processes; `most` is the number of turns.

        Each turn is a lock on one byte of that file. Children that a test forks do not have them, so they cannot keep a turn.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._most = most

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it within the context."""
        while (number := self._taken()) is None:
            time.sleep(_LOOKS_EVERY_S)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def _taken(self) -> int | None:
        for number in range(self._most):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except BlockingIOError:
                continue
            return number
        return None


def most_turns() -> int:
    """Return how many tests compute at once: some of them wait, for programs that they start."""
    return len(os.sched_getaffinity(0)) + 2
