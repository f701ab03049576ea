"""At which step boundary all ranks save, though each was asked at another time.

An all-reduce a step would cost a step of a millisecond a tenth. So the ranks exchange what they know every few steps only, and
do not wait for it: the exchange begins at one boundary and is looked at when the next one is due, steps later. All ranks read the
same result at the same boundary, so they agree on the save, and on how many steps it is to the next exchange, which follows from
the slowest rank's pace: about 10 exchanges a second, and one a step where steps take longer than that.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Tuple

from .together import Together, most

_PERIOD_NS = 100_000_000
_MOST_STEPS = 1_000


class Agreement:
    """Invariant: `at` gives the same answer on all ranks, as long as all count the same boundaries."""

    def __init__(
        self,
        ranks: Together,
        wanted: Callable[[], bool],
        busy: Callable[[], bool],
        terms: Callable[[], Tuple[int, int]],
    ) -> None:
        """`wanted`: this rank was asked for a save. `busy`: it cannot begin one yet. `terms`: see Standing.terms."""
        self._ranks = ranks
        self._wanted = wanted
        self._busy = busy
        self._terms = terms
        self._launched: Any = None
        self._apart = 1
        self._last = 0
        self._pace_ns = 0
        self._last_ns = time.monotonic_ns()
        self.due = 1
        """The number of the boundary at which `at` has to be called next."""
        self.terms = (0, 0)
        """On which the save that `at` has told of begins: the largest of all ranks'."""

    def at(self, boundary: int, *, now: bool = False) -> bool:
        """Whether to save at this boundary. `now`: ask all ranks here and wait for them; on all ranks or on none."""
        save = False
        if self._launched is not None:
            save = self._read()
            self._launched = None
        if now and not save:
            self._launch(boundary)
            save = self._read()
            self._launched = None
        self.due = boundary + self._apart
        return save

    def go_on(self, boundary: int) -> None:
        """Begins the next exchange; after the save, if there is one."""
        self._launch(boundary)

    def end(self) -> bool:
        """At the end of the run, on all ranks: whether to save once more."""
        if self._launched is not None and self._read():
            self._launched = None
            return True
        self._launched = None
        return bool(most(self._ranks, int(self._wanted()))[0])

    def _launch(self, boundary: int) -> None:
        now_ns = time.monotonic_ns()
        if boundary > self._last:
            self._pace_ns = (now_ns - self._last_ns) // (boundary - self._last)
            self._last, self._last_ns = boundary, now_ns
        self._launched = self._ranks.launch((int(self._wanted()), int(self._busy()), self._pace_ns, *self._terms()))

    def _read(self) -> bool:
        wanted, busy, pace_ns, still_ms, key = self._ranks.result(self._launched)
        self.terms = still_ms, key
        self._apart = min(max(_PERIOD_NS // max(pace_ns, 1), 1), _MOST_STEPS)
        return bool(wanted and not busy)
