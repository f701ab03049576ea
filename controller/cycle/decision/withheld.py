"""Running jobs that are not offered to policies for a while: each may be stopped, but the budget is too small for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from controller.profiles.windows import RunKey

WITHHELD_S = 30.0
"""How long a policy has to do without them, before what it would do with them is looked at anew."""


class Withheld:
    """Invariant: who is held back is so at the next look at least, and no longer than HELD_BACK_S from the look after that on.

    A policy that is offered jobs which are not stopped in the end keeps the nodes beside them free for a job that cannot start,
    cycle after cycle. Without them it places others there.
    """

    def __init__(self) -> None:
        self.fresh = False
        """Somebody was held back since the last look."""
        self._since_s: dict[RunKey, float] = {}
        self._all_since_s: float | None = None

    def withhold(self, runs: Iterable[RunKey], now_s: float, *, all_others: bool) -> None:
        """These; with `all_others` all others too, so that what the budget has left is kept for these."""
        self.fresh = True
        self._since_s.update(dict.fromkeys(runs, now_s))
        if all_others:
            self._all_since_s = now_s

    def without(self, may: frozenset[RunKey], now_s: float) -> frozenset[RunKey]:
        """Those of them that are not held back: a look."""
        if not self.fresh:
            self._since_s = {run: since_s for run, since_s in self._since_s.items() if _lasts(since_s, now_s)}
            if self._all_since_s is not None and not _lasts(self._all_since_s, now_s):
                self._all_since_s = None
        self.fresh = False
        return frozenset() if self._all_since_s is not None else may - self._since_s.keys()


def _lasts(since_s: float, now_s: float) -> bool:
    """Of a time ahead of us the clock was set back: nobody waits for that."""
    return 0 <= now_s - since_s < WITHHELD_S
