"""At which step boundary all ranks save, though each was asked at another time.

An all-reduce a step would cost a step of a millisecond a tenth. So the ranks exchange what they know every few steps only, and
do not wait for it: the exchange begins at one boundary and is looked at when the next one is due, steps later. All ranks read the
same result at the same boundary, so they agree on the save, and on how many steps it is to the next exchange, which follows from
the slowest rank's pace: about 10 exchanges a second, and one a step where steps take longer than that.

Every exchange has the same numbers, whatever a rank is at, so that one that trains understands another that has ended.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, NamedTuple, Tuple

from .rank_group import Together

_PERIOD_NS = 100_000_000
_MOST_STEPS = 1_000


class Parted(Exception):  # noqa: N818 - what happened, as a word
    """Another rank takes no part any more."""


class _Told(NamedTuple):
    """One rank's numbers; and the largest of all ranks'."""

    wanted: int
    busy: int
    pace_ns: int = 0
    still_ms: int = 0
    key: int = 0
    ends: int = 0
    """Its training is over."""
    goes_on: int = 1
    """It has not come to the regular end of its training."""


class Agreement:
    """Invariant: `at` gives the same answer on all ranks, as long as all count the same boundaries.

    Whatever is raised here, by a rank that is gone or by a signal's handler, this rank is no longer in step: then `leave`.
    """

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
        self.left = False
        """This rank takes no part any more."""

    def at(self, boundary: int, *, now: bool = False) -> bool:
        """Whether to save at this boundary. `now`: ask all ranks here and wait for them; on all ranks or on none."""
        save = self._launched is not None and self._read()
        if now and not save:
            self._launch(boundary)
            save = self._read()
        self.due = boundary + self._apart
        return save

    def go_on(self, boundary: int) -> None:
        """Begins the next exchange; after the save, if there is one."""
        self._launch(boundary)

    def end(self, until_s: float) -> bool:
        """At the end of the run, on all ranks: whether one of them wants to save once more. Raises as `Together.result`."""
        if self._launched is not None:
            self._check(self._result(until_s).ends)
        return bool(self._end(int(self._wanted()), 0, until_s).wanted)

    def may_begin(self, until_s: float) -> bool:
        """After `end`, on all ranks: whether none of them is busy."""
        return not self._end(0, int(self._busy()), until_s).busy

    def leave(self) -> None:
        """Takes no part any more, and tells the others, in their next exchange, if it still can. Raises nothing of torch's."""
        if self.left:
            return
        self.left, self.due = True, sys.maxsize
        try:
            self._ranks.launch(_Told(0, 1, ends=1))
        except Exception:
            pass  # the program has taken its groups down, or the other ranks are gone: they know

    def _launch(self, boundary: int) -> None:
        now_ns = time.monotonic_ns()
        if boundary > self._last:
            self._pace_ns = (now_ns - self._last_ns) // (boundary - self._last)
            self._last, self._last_ns = boundary, now_ns
        told = _Told(int(self._wanted()), int(self._busy()), self._pace_ns, *self._terms())
        self._launched = self._ranks.launch(told)

    def _read(self) -> bool:
        told = self._result()
        self._check(told.ends)
        self.terms = told.still_ms, told.key
        self._apart = min(max(_PERIOD_NS // max(told.pace_ns, 1), 1), _MOST_STEPS)
        return bool(told.wanted and not told.busy)

    def _result(self, until_s: Any = None) -> _Told:
        launched, self._launched = self._launched, None
        most_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
        return _Told(*self._ranks.result(launched, most_s))

    def _end(self, wanted: int, busy: int, until_s: float) -> _Told:
        self._launched = self._ranks.launch(_Told(wanted, busy, ends=1, goes_on=0))
        told = self._result(until_s)
        self._check(told.goes_on)
        return told

    def _check(self, apart: int) -> None:
        """All ranks read this, and meet no more."""
        if apart:
            self.left, self.due = True, sys.maxsize
            raise Parted("another rank has ended, or cannot save any more")
