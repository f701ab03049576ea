"""Changes and ended runs between the snapshot that shows them and the next good cycle, which reports them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TypeVar

import structlog

from controller.cycle.changes import JobChanges
from controller.state.journal import RunRecord

log = structlog.get_logger(__name__)

_MOST = 10_000
"""Maximum number of earlier changes of each kind, and of ended runs, that are kept while cycles fail; the journal has all runs."""
T = TypeVar("T")


class Unreported:
    """Invariant: a change is here from the snapshot that showed it to the first good cycle after that, so that the listeners of
    the controller get it exactly once. The next snapshot is compared with this one, and would not show it again. What the last
    snapshot shows is never cut, however much it is: a cycle that succeeds reports all of it.
    """

    def __init__(self) -> None:
        self.changes = JobChanges()
        """Bound: of each kind, those of the last snapshot, and the newest `_MOST` of those before."""
        self.runs: tuple[RunRecord, ...] = ()
        """Jobs that have ended. Bound: those of the last snapshot, and the newest `_MOST` of those before."""
        self._cut = False

    def has(self, job_id: str) -> bool:
        """Return whether a start or an end of that job is unreported."""
        return any(job.key.job_id == job_id for job in (*self.changes.started, *self.changes.ended))

    def add(self, changes: JobChanges, runs: Iterable[RunRecord]) -> None:
        """Add what one snapshot shows."""
        kinds: list[tuple[object, ...]] = [
            self.runs,
            *(getattr(self.changes, kind.name) for kind in fields(JobChanges)),
        ]
        most = max(len(kind) for kind in kinds)
        if most > _MOST and not self._cut:
            self._cut = True  # logged once, until a cycle succeeds
            log.warning(
                "changes_cut", most=most, kept=_MOST, problem="cycles fail; the oldest changes are not reported"
            )
        self.changes = merged(self.changes, changes)
        self.runs = (*_newest(self.runs), *runs)

    def clear(self) -> None:
        """Forget all of it: it is being reported."""
        self.changes, self.runs, self._cut = JobChanges(), (), False


def merged(earlier: JobChanges, later: JobChanges) -> JobChanges:
    """Return the changes of both, in their order; `new` is that of the later ones alone. Of the earlier ones, the newest `_MOST`
    of each kind are left."""
    back = {job.key for job in later.new}
    return JobChanges(
        new=later.new,
        started=(*_newest(earlier.started), *later.started),
        present=(*_newest(earlier.present), *later.present),
        ended=(*_newest(earlier.ended), *later.ended),
        unseen=(*_newest(earlier.unseen), *later.unseen),
        requeued=(*_newest(earlier.requeued), *later.requeued),
        gone=(*(key for key in _newest(earlier.gone) if key not in back), *later.gone),
    )


def _newest(items: tuple[T, ...]) -> tuple[T, ...]:
    return items[-_MOST:]
