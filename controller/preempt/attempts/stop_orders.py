"""The second half of a preemption: the cycle gets orders to stop or to signal jobs, and reports their results."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from controller.base.clock import Clock
from controller.base.errors import JournalError
from controller.preempt.attempts.attempt import PreemptionAttempt, first_to_stop
from controller.preempt.attempts.open_preemptions import OpenPreemptions
from controller.slurm.client import Failure, FailureReason
from controller.state.preemption import EndReason, Preemption, Stage, moved

log = structlog.get_logger(__name__)

_SIGNALS_AT_ONCE = 32
"""Maximum number of jobs to signal at once: each signal is a process of its own, and the cycle waits for all of them."""


class StopOrders:
    """Invariant: an attempt is busy from its order until the cycle has reported it, or all orders are over."""

    def __init__(
        self, open_: OpenPreemptions, clock: Clock, monotonic: Callable[[], float], wanted: asyncio.Event
    ) -> None:
        self._open = open_
        self._clock = clock
        self._monotonic = monotonic
        self._wanted = wanted

    def give(self) -> tuple[list[Preemption], list[Preemption]]:
        """Return the preemptions whose jobs the cycle is to stop now, and those whose jobs it is to signal."""
        self._wanted.clear()
        now = self._monotonic()
        due = [attempt for attempt in self._open.all if attempt.due(now)]
        stops = first_to_stop(due, now)
        signals = self._recorded([attempt for attempt in due if not attempt.to_stop(now)][:_SIGNALS_AT_ONCE])
        for attempt in (*stops, *signals):
            attempt.busy = True
        return [attempt.row for attempt in stops], [attempt.row for attempt in signals]

    def _recorded(self, signals: Iterable[PreemptionAttempt]) -> list[PreemptionAttempt]:
        """Record the signals in the journal. Returns the attempts that were recorded; the others are signalled next time."""
        recorded: list[PreemptionAttempt] = []
        try:
            for attempt in signals:
                self._open.change(attempt, replace(attempt.row, attempt=1), silent=True)
                recorded.append(attempt)
        except JournalError as error:
            log.error("signal_not_recorded", problem=str(error))
        return recorded

    def stopped(self, row: Preemption, failure: Failure | None) -> None:
        """Record the result of an order to stop a job. Raises JournalError."""
        attempt = self._open.of_row(row)
        if attempt is None:
            return
        if failure is None:
            self._open.constrain(row.key, row)
            self._open.change(attempt, moved(attempt.row, Stage.STOPPED, self._clock.now()))
        elif failure.unavailable:
            attempt.tried(failure.message, self._monotonic())
        elif failure.reason is FailureReason.ENDED_FIRST:
            # Slurm shows the job pending and requeued, as if it had been stopped, but only its user may let it run again.
            attempt.over, attempt.try_at, attempt.busy = f"the job {failure.message}", math.inf, False
            self.end(attempt)
        else:
            attempt.refused, attempt.try_at = failure.message, math.inf
        attempt.busy = False

    def end(self, attempt: PreemptionAttempt) -> None:
        """End an attempt whose job had ended before it was stopped. Raises JournalError."""
        self._open.change(attempt, moved(attempt.row, Stage.OVER, self._clock.now(), attempt.over, EndReason.JOB_ENDED))

    def signalled(self, row: Preemption, failure: Failure | None) -> None:
        """Record the result of a signal to a job. If the signal may have arrived, the job's requeue is awaited."""
        attempt = self._open.of_row(row)
        if attempt is None:
            return
        attempt.busy = False
        if failure is None:
            return
        if failure.unavailable:
            attempt.failure = failure.message
        else:
            attempt.refused = failure.message

    def close(self) -> None:
        """End all orders. One without a report may have been carried out or not: the next snapshots show which."""
        for attempt in self._open.all:
            if attempt.busy:
                attempt.busy = False
                attempt.tried("it is not known whether the request reached Slurm", self._monotonic())
