"""Decides at which step boundary all ranks save, although each received its request at another time.

An all-reduce in each step would make a step of 1 ms 10 % longer. So the ranks exchange what they know only every few steps, and do
not wait for it: an exchange begins at one boundary, and its result is read when the next exchange is due, some steps later. All
ranks read the same result at the same boundary. So they agree on the save, and on the number of steps until the next exchange,
which follows from the pace of the slowest rank: about 10 exchanges in each second, or one in each step if steps take longer.

Each exchange has the same numbers, whatever a rank does, so that a rank that trains understands another one that has ended.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, NamedTuple, Tuple

from .rank_group import RankGroup

_PERIOD_NS = 100_000_000
_MAX_STEPS = 1_000


class RankLeft(Exception):  # noqa: N818 - an event, not a mistake
    """Another rank takes part in no more saves."""


class _Message(NamedTuple):
    """The numbers of one rank; or, as a result, the maximum of each over all ranks."""

    wanted: int
    busy: int
    pace_ns: int = 0
    pause_ms: int = 0
    key: int = 0
    ends: int = 0
    """1 = its training is over."""
    goes_on: int = 1
    """1 = it has not reached the regular end of its training."""


class SaveAgreement:
    """Invariant: `at` gives the same result on all ranks, as long as all count the same boundaries.

    If anything is raised here (by a rank that is gone, or by a signal handler), this rank is out of step: then call `leave`.
    """

    def __init__(
        self,
        ranks: RankGroup,
        wanted: Callable[[], bool],
        busy: Callable[[], bool],
        terms: Callable[[], Tuple[int, int]],
    ) -> None:
        """`wanted`: a save was requested of this rank. `busy`: it cannot begin one yet. `terms`: see PauseControl.terms."""
        self._ranks = ranks
        self._wanted = wanted
        self._busy = busy
        self._terms = terms
        self._launched: Any = None
        self._steps_between = 1
        self._last = 0
        self._pace_ns = 0
        self._last_ns = time.monotonic_ns()
        self.due = 1
        """Number of the boundary at which `at` has to be called next."""
        self.terms = (0, 0)
        """Terms of the save that `at` has decided on: the maximum over all ranks."""
        self.left = False
        """This rank takes part in no more saves."""

    def at(self, boundary: int, *, now: bool = False) -> bool:
        """Return True if all ranks save at this boundary. `now` (the same on all ranks): ask all ranks here, and wait for them."""
        save = self._launched is not None and self._read()
        if now and not save:
            self._launch(boundary)
            save = self._read()
        self.due = boundary + self._steps_between
        return save

    def go_on(self, boundary: int) -> None:
        """Begin the next exchange; after the save, if there is one."""
        self._launch(boundary)

    def end(self, until_s: float) -> bool:
        """Return True if a rank wants a last save; at the end of the run, on all ranks. Raises as `RankGroup.result` does."""
        if self._launched is not None:
            self._check(self._result(until_s).ends)
        return bool(self._end(int(self._wanted()), 0, until_s).wanted)

    def may_begin(self, until_s: float) -> bool:
        """Return True if no rank is busy; after `end`, on all ranks."""
        return not self._end(0, int(self._busy()), until_s).busy

    def leave(self) -> None:
        """Take part in no more saves, and inform the others in their next exchange, if possible. Raises none of torch's errors."""
        if self.left:
            return
        self.left, self.due = True, sys.maxsize
        try:
            self._ranks.launch(_Message(0, 1, ends=1))
        except Exception:
            pass  # the program has destroyed its groups, or the other ranks are gone: they notice it themselves

    def _launch(self, boundary: int) -> None:
        now_ns = time.monotonic_ns()
        if boundary > self._last:
            self._pace_ns = (now_ns - self._last_ns) // (boundary - self._last)
            self._last, self._last_ns = boundary, now_ns
        message = _Message(int(self._wanted()), int(self._busy()), self._pace_ns, *self._terms())
        self._launched = self._ranks.launch(message)

    def _read(self) -> bool:
        message = self._result()
        self._check(message.ends)
        self.terms = message.pause_ms, message.key
        self._steps_between = min(max(_PERIOD_NS // max(message.pace_ns, 1), 1), _MAX_STEPS)
        return bool(message.wanted and not message.busy)

    def _result(self, until_s: Any = None) -> _Message:
        launched, self._launched = self._launched, None
        most_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
        return _Message(*self._ranks.result(launched, most_s))

    def _end(self, wanted: int, busy: int, until_s: float) -> _Message:
        self._launched = self._ranks.launch(_Message(wanted, busy, ends=1, goes_on=0))
        message = self._result(until_s)
        self._check(message.goes_on)
        return message

    def _check(self, left: int) -> None:
        """Raise RankLeft on all ranks if one has left, after which they exchange nothing more."""
        if left:
            self.left, self.due = True, sys.maxsize
            raise RankLeft("another rank has ended, or can save no more")
