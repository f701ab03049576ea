"""Preemptions that have not ended, and their rows in the journal: every change of a stage is made here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import structlog

from controller.base.clock import Clock
from controller.base.events import EventLog
from controller.base.listener_failures import ListenerFailures
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.preempt.text import event_text
from controller.slurm.model.job import JobKey
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from controller.state.preemption import Preemption, left_s

log = structlog.get_logger(__name__)

Listener = Callable[[Preemption], None]
"""Called after every change of a stage, in the event loop: it must not wait, and must not raise."""


class OpenPreemptions:
    """Invariant: at most one open preemption per job, and the journal has the stage of each before Headway acts on it."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
        monotonic: Callable[[], float],
        failures: ListenerFailures,
    ) -> None:
        """Continue the preemptions that are open in the journal. `failures` gets those of the listeners."""
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._monotonic = monotonic
        self._failures = failures
        self.listeners: list[Listener] = []
        """Bound: the controller's own parts."""
        self.changed = asyncio.Event()
        """Set by every change of a stage."""
        self._attempts = {row.raw_id: _continued(row, clock.now(), monotonic()) for row in journal.preemptions.open()}
        """Attempts by the numbers of their jobs. Bound: one for each job of Slurm; it leaves when its preemption ends."""

    def __bool__(self) -> bool:
        return bool(self._attempts)

    @property
    def all(self) -> list[PreemptionAttempt]:
        """All open attempts: a copy, because attempts that end leave the table."""
        return list(self._attempts.values())

    @property
    def rows(self) -> dict[int, Preemption]:
        """Rows of all open attempts, by Slurm's own number of the job. It may be called from other threads."""
        return {raw_id: attempt.row for raw_id, attempt in list(self._attempts.items())}

    def of_job(self, raw_id: int | None) -> PreemptionAttempt | None:
        """Return the open attempt of the job with this number; None when there is none."""
        return None if raw_id is None else self._attempts.get(raw_id)

    def of_row(self, row: Preemption) -> PreemptionAttempt | None:
        """Return the attempt of this row, if it is still open."""
        attempt = self._attempts.get(row.raw_id)
        return attempt if attempt is not None and attempt.row.number == row.number else None

    def add(self, row: Preemption, deadline: float) -> PreemptionAttempt:
        """Begin an attempt; the table gives the row its number. `deadline` is on the monotonic clock. Raises JournalError."""
        attempt = PreemptionAttempt(self._journal.preemptions.add(row), deadline=deadline, seen=True)
        self._attempts[row.raw_id] = attempt
        self._announce(attempt.row)
        return attempt

    def change(self, attempt: PreemptionAttempt, row: Preemption, *, silent: bool = False) -> None:
        """Write the row into the journal, and then make it the present one; `silent`: without an event. Raises JournalError."""
        self._journal.preemptions.save(row)
        if row.stopped_s is not None and attempt.row.stopped_s is None:
            attempt.stopped_at = self._monotonic()
        attempt.row = row
        if not row.open:
            del self._attempts[row.raw_id]
        if not silent:
            self._announce(row)

    def constrain(self, key: JobKey, row: Preemption) -> None:
        """Record where the stopped job must go, before the row says that it is stopped. Raises JournalError."""
        self._ledger.set_constraint(key, row.constraint)
        self._journal.save_jobs(self._ledger, [key])

    def _announce(self, row: Preemption) -> None:
        text = event_text(row)
        log.info("preemption", number=row.number, job=row.job_id, stage=row.stage.value, text=text)
        self._events.add("preempt", row.job_id, text)
        for listener in self.listeners:
            try:
                listener(row)
            except Exception as error:  # noqa: BLE001 - it must not undo a change that the journal has, nor hide it from the others
                self._failures.note(listener, error)
        self.changed.set()


def _continued(row: Preemption, now_s: float, now: float) -> PreemptionAttempt:
    """Return the attempt of a row that an earlier controller left open."""
    stopped_at = math.inf
    if row.stopped_s is not None:
        stopped_at = now - max(now_s - row.stopped_s, 0.0)
    return PreemptionAttempt(row, deadline=now + left_s(row, now_s), stopped_at=stopped_at)
