"""Work that needs several calls, as steps without input or output: both clients carry them out, each in its own way."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, replace
from typing import Any, Callable, TypeVar, Union

from headway_client import calls
from headway_client.answers.jobs import Explanation
from headway_client.answers.preemptions import PreemptionRecord
from headway_client.answers.snapshot import Snapshot
from headway_client.calls import Call, JobId
from headway_client.errors import (
    BusyError,
    HeadwayError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotReadyError,
    UnavailableError,
    WaitTimeoutError,
)
from headway_client.words import JobState, Reason

T = TypeVar("T")
Until = Union[JobState, str, Collection[Union[JobState, str]], None]
"""State or states to wait for; None: any state but the first one seen."""

APPEARS_S = 30.0
"""How long a job that was submitted just now may be unknown, in seconds."""
_SHORTEST_S = 0.1
_NEWEST = 100


@dataclass(frozen=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


Steps = Generator[Union[Call[Any], Pause], Any, T]


class _WaitLimits:
    """The limits of a wait: how long it lasts, and how long the controller may be away meanwhile. Times are of `now`, seconds."""

    def __init__(self, now: Callable[[], float], timeout_s: float | None, every_s: float, away_s: float) -> None:
        if not every_s >= _SHORTEST_S:
            raise InvalidRequestError(f"every_s: {every_s} s is too short; give {_SHORTEST_S} at least")
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidRequestError(f"timeout_s: {timeout_s} s is not a time limit; give more than 0 seconds")
        self._now, self._every_s, self._away_s = now, every_s, away_s
        self.begun_s = now()
        self._end_s = None if timeout_s is None else self.begun_s + timeout_s
        self._away_since_s: float | None = None

    def passed_s(self) -> float:
        """Return the seconds since the wait began."""
        return self._now() - self.begun_s

    def limit(self, call: Call[Any]) -> Call[Any]:
        """Return the call with a time limit that does not reach far beyond the end of the wait."""
        if self._end_s is None:
            return call
        return replace(call, longest_s=max(self._end_s - self._now(), _SHORTEST_S))

    def answered(self) -> None:
        """Note that the controller is there."""
        self._away_since_s = None

    def away(self, error: Exception) -> None:
        """Note that the controller did not answer; raise the error when that has lasted for too long."""
        if self._away_since_s is None:
            self._away_since_s = self._now()
        if self._now() - self._away_since_s >= self._away_s:
            raise error

    def pause(self, late: str) -> Pause:
        """Return the pause until the next call. Raises WaitTimeoutError with that text when the wait is over."""
        if self._end_s is None:
            return Pause(self._every_s)
        left_s = self._end_s - self._now()
        if left_s <= 0:
            raise WaitTimeoutError(late)
        return Pause(min(self._every_s, left_s))


def wait(
    job_id: JobId, until: Until, timeout_s: float | None, every_s: float, away_s: float, now: Callable[[], float]
) -> Steps[Explanation]:
    """Wait for a state of a job. A job that ends ends the wait, whatever was waited for."""
    limits = _WaitLimits(now, timeout_s, every_s, away_s)
    wanted = None if until is None else {until} if isinstance(until, str) else set(until)
    first: str | None = None
    state = "not known"
    while True:
        try:
            found = yield limits.limit(calls.why(job_id))
        except (NotFoundError, NotPermittedError) as error:
            if not _is_unknown(error) or first is not None or limits.passed_s() >= APPEARS_S:
                raise
            limits.answered()
        except (UnavailableError, BusyError) as error:
            limits.away(error)
        else:
            limits.answered()
            state = found.state
            first = state if first is None else first
            if state == JobState.ENDED or (state != first if wanted is None else state in wanted):
                return found  # type: ignore[no-any-return]
        yield limits.pause(f"job {job_id} is still {state} after {limits.passed_s():.1f} s")


def _is_unknown(error: HeadwayError) -> bool:
    """Return whether the controller may not know the job yet. Where jobs are private, it refuses unknown ones too."""
    return isinstance(error, NotFoundError) or error.reason == Reason.JOBS_PRIVATE


def wait_for_preemption(
    number: int, timeout_s: float | None, every_s: float, away_s: float, now: Callable[[], float]
) -> Steps[PreemptionRecord]:
    """Wait until a preemption has ended."""
    limits = _WaitLimits(now, timeout_s, every_s, away_s)
    stage = "not known"
    while True:
        try:
            found = yield limits.limit(calls.preemptions(number=number))
        except (UnavailableError, BusyError) as error:
            limits.away(error)
        else:
            limits.answered()
            if not found.preemptions:
                raise NotFoundError(f"there is no preemption {number} (`headway preemptions` lists them)")
            record: PreemptionRecord = found.preemptions[0]
            if not record.open:
                return record
            stage = record.stage
        yield limits.pause(f"preemption {number} is still {stage} after {limits.passed_s():.1f} s")


def snapshot() -> Steps[Snapshot]:
    """Ask for everything at once."""
    status = yield calls.status()
    try:
        queue = yield calls.queue()
        preemptions = yield calls.preemptions(_NEWEST)
    except (NotPermittedError, NotReadyError):
        queue = preemptions = None
    return Snapshot(status, queue, preemptions)
