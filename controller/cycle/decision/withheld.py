"""Running jobs that are withheld from policies for a while: each may be stopped, but the budget is too small for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from controller.profiles.windows import RunKey

WITHHELD_S = 30.0
"""Time for which withheld jobs are not offered to the policy, seconds; then it may decide with them again."""


class Withheld:
    """Invariant: a withheld run is left out of the next call of `without`, and then for no longer than WITHHELD_S.

    A policy that may stop jobs which then are not stopped keeps nodes free for a job that cannot start,
    cycle after cycle. Without these jobs it places others there.
    """

    def __init__(self) -> None:
        self.fresh = False
        """True if a run was withheld since the last call of `without`."""
        self._since_s: dict[RunKey, float] = {}
        self._all_since_s: float | None = None

    def withhold(self, runs: Iterable[RunKey], now_s: float, *, all_others: bool) -> None:
        """Withhold these runs; with `all_others` every other run too, so that the rest of the budget is saved for these."""
        self.fresh = True
        self._since_s.update(dict.fromkeys(runs, now_s))
        if all_others:
            self._all_since_s = now_s

    def without(self, may: frozenset[RunKey], now_s: float) -> frozenset[RunKey]:
        """Return the runs among `may` that are not withheld now."""
        if not self.fresh:
            self._since_s = {run: since_s for run, since_s in self._since_s.items() if _lasts(since_s, now_s)}
            if self._all_since_s is not None and not _lasts(self._all_since_s, now_s):
                self._all_since_s = None
        self.fresh = False
        return frozenset() if self._all_since_s is not None else may - self._since_s.keys()


def _lasts(since_s: float, now_s: float) -> bool:
    """Return whether a run withheld at that time still is. A time in the future ends it: the clock was set back."""
    return 0 <= now_s - since_s < WITHHELD_S
