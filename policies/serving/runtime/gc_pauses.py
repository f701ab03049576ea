"""Garbage collection between decisions instead of during them.

A queue of ten thousand jobs is half a million objects that stay for hours. Python's collector would walk over all of them
whenever a cycle has made a quarter as many new ones, and stop a decision for as long as the decision takes (measured: up to
80 ms). Nearly everything that a cycle makes is freed by reference count; what is left over can wait for its end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALL_EVERY = 100
"""Cycles after which all objects are examined, also long-lived ones."""


class PausedCollector:
    """Collects garbage when it is asked to. Invariant: while it is in use, nothing else collects, so call `collect` regularly."""

    def __init__(self) -> None:
        self._cycles = 0

    def collect(self) -> None:
        """Collect recent garbage; at the first call and now and then all garbage."""
        everything = self._cycles % _ALL_EVERY == 0
        self._cycles += 1
        gc.collect(2 if everything else 1)


@contextmanager
def paused_collector() -> Iterator[PausedCollector]:
    """Switch automatic collection off inside the `with` block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield PausedCollector()
    finally:
        if was_on:
            gc.enable()
