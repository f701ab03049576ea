"""Running jobs that are withheld from policies for a while: each may be stopped, but the budget is too small for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from controller.profiles.windows import RunKey

WITHHELD_S = 30.0
"""Time for which withheld jobs are not offered to the policy, seconds; then it may decide with them again."""
_ALL_OTHERS = None


class Withheld:
    """Invariant: a withheld run is left out of the next call of `without`, and then for no longer than WITHHELD_S.

    A policy that may stop jobs which then are not stopped keeps nodes free for a job that cannot start,
    cycle after cycle. Without these jobs it places others there.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`monotonic`: a clock that is never set, seconds."""
        self._monotonic = monotonic
        self._since_s: dict[RunKey | None, float] = {}
        """Time since which each run is withheld. Bound: each call of `without` drops those that are over."""
        self._new: set[RunKey | None] = set()
        """What was withheld since the last call of `without`, which empties it. Bound: the running jobs."""

    @property
    def fresh(self) -> bool:
        """True if a run was withheld since the last call of `without`."""
        return bool(self._new)

    def withhold(self, runs: Iterable[RunKey], *, all_others: bool) -> None:
        """Withhold these runs; with `all_others` every other run too, so that the rest of the budget is saved for these."""
        withheld = {*runs, _ALL_OTHERS} if all_others else set(runs)
        self._new |= withheld
        self._since_s |= dict.fromkeys(withheld, self._monotonic())

    def without(self, may: frozenset[RunKey]) -> frozenset[RunKey]:
        """Return the runs among `may` that are not withheld now."""
        over_s = self._monotonic() - WITHHELD_S
        self._since_s = {run: since_s for run, since_s in self._since_s.items() if since_s > over_s or run in self._new}
        self._new.clear()
        return frozenset() if _ALL_OTHERS in self._since_s else may - self._since_s.keys()
