"""Changes and ended runs between the snapshot that shows them and the next good cycle, which reports them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from controller.cycle.changes import JobChanges
from controller.state.journal import RunRecord

_MOST = 10_000
"""Maximum number of changes of each kind, and of ended runs, that are kept while cycles fail; the journal has all runs."""
T = TypeVar("T")


class Unreported:
    """Invariant: a change is here from the snapshot that showed it to the first good cycle after that, so that the listeners of
    the controller get it exactly once. The next snapshot is compared with this one, and would not show it again.
    """

    def __init__(self) -> None:
        self.changes = JobChanges()
        """Bound: `_MOST` of each kind, the newest."""
        self.runs: tuple[RunRecord, ...] = ()
        """Jobs that have ended. Bound: `_MOST`, the newest."""

    def add(self, changes: JobChanges, runs: Iterable[RunRecord]) -> None:
        """Add what one snapshot shows."""
        self.changes = merged(self.changes, changes)
        self.runs = _newest((*self.runs, *runs))

    def clear(self) -> None:
        """Forget all of it: it is being reported."""
        self.changes, self.runs = JobChanges(), ()


def merged(earlier: JobChanges, later: JobChanges) -> JobChanges:
    """Return the changes of both, in their order; `new` is that of the later ones alone."""
    back = {job.key for job in later.new}
    return JobChanges(
        new=later.new,
        started=_newest((*earlier.started, *later.started)),
        present=_newest((*earlier.present, *later.present)),
        ended=_newest((*earlier.ended, *later.ended)),
        unseen=_newest((*earlier.unseen, *later.unseen)),
        requeued=_newest((*earlier.requeued, *later.requeued)),
        gone=_newest((*(key for key in earlier.gone if key not in back), *later.gone)),
    )


def _newest(items: tuple[T, ...]) -> tuple[T, ...]:
    return items[-_MOST:]
