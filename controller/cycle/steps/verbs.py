"""The changing verbs of Slurm, as a cycle uses them: every call is journaled, and many jobs are changed in pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import structlog

from controller.base.apart import LEFT_OUT
from controller.base.clock import Clock
from controller.base.errors import HeadwayError, SlurmError
from controller.base.events import EventLog
from controller.slurm.client import Failure, FailureReason, Failures, Pin, SlurmClient
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.updates.pieces import Pieces
from controller.state.journal import Journal

log = structlog.get_logger(__name__)

_AT_FAULT = frozenset({FailureReason.REFUSED, FailureReason.ENDED_FIRST})
"""Kinds of failures that may mean that Slurm makes no change for Headway at all."""
_PIECES_A_CYCLE = 8
_CALLS_A_START = 3
"""Number of calls for one start: pin, release, change of the marks."""
_MOST_STARTS = 500
"""Maximum number of jobs to place in one cycle; the next cycle decides on the rest, from a newer snapshot."""


class JournaledVerbs:
    """Changes jobs in Slurm. Invariant: the journal has the intent of each call before the call, and its outcome after it."""

    def __init__(
        self,
        client: SlurmClient,
        journal: Journal,
        events: EventLog,
        clock: Clock,
        progress: Callable[[], None],
        before_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`progress` is called after each change that Slurm has made, also within a long cycle. `before_change` is called before
        each, and an error of it ends the verb."""
        self._client = client
        self._journal = journal
        self._events = events
        self._clock = clock
        self._progress = progress
        self._before_change = before_change
        self.starts = Pieces(calls=_CALLS_A_START)
        """Pieces of the jobs that a plan starts."""
        self._pieces: defaultdict[str, Pieces] = defaultdict(Pieces)
        """Sizes of the pieces of each verb: Slurm takes longer for some than for others. Bound: the verbs."""
        self.errors = 0
        """Number of jobs for which a call has failed, since the start."""
        self._refused_calls = 0
        self._refused_jobs: set[str] = set()
        """Ids of the jobs that these calls were about, two at most. Bound: two."""

    @property
    def refused_in_a_row(self) -> int:
        """Number of calls that Slurm has refused since it last carried one out; calls that did not reach Slurm do not count.

        0 while all of them were about the same job, because that job may be the cause.
        """
        return self._refused_calls if len(self._refused_jobs) > 1 else 0

    @property
    def most_starts(self) -> int:
        """Maximum number of jobs that one cycle may place; it is small when slurmctld is slow."""
        return min(_PIECES_A_CYCLE * self.starts.size, _MOST_STARTS)

    async def hold(self, why: Mapping[JobKey, str]) -> Failures:
        """Hold pending jobs with our mark; `why` goes to the journal."""
        return await self._in_pieces("hold", why, self._client.hold)

    async def unregistered(self, nodes: Sequence[str]) -> frozenset[str]:
        """Return those of these nodes that have not registered with slurmctld since it started. Raises SlurmError."""
        return await self._client.unregistered(nodes)

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Return these jobs as they are now. Raises SlurmError."""
        return await self._client.read(keys)

    async def release(self, why: Mapping[JobKey, str]) -> Failures:
        """Release the jobs: Slurm may start them from now on."""
        return await self._in_pieces("release", why, self._client.release)

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add one of our marks to the admin comment."""
        return await self._in_pieces("mark", dict.fromkeys(keys, mark), lambda piece: self._client.mark(piece, mark))

    async def unmark(
        self, keys: Sequence[JobKey], mark: str = HOLD_MARK, instead: str = "", *, unless_held: bool = False
    ) -> Failures:
        """Remove one of our marks from the admin comment, and add another one if `instead` is given.

        A released job loses HOLD_MARK, because a later hold is not Headway's. `unless_held`: see `SlurmClient.unmark`.
        """
        if not keys:
            return {}

        async def unmark(piece: list[JobKey]) -> Failures:
            return await self._client.unmark(piece, mark, instead, unless_held=unless_held)

        return await self._in_pieces("unmark", dict.fromkeys(keys, mark), unmark)

    async def pin(self, pins: Sequence[Pin], described: Mapping[JobKey, str]) -> Failures:
        """Bind held jobs to nodes, in one call."""
        by_key = {pin.key: pin for pin in pins}
        return await self._call("pin", described, lambda keys: self._client.pin([by_key[key] for key in keys]))

    def can_bind_gpus(self, pin: Pin) -> bool:
        """Return whether Slurm can be told which GPUs this job gets, as the pin names them."""
        return self._client.can_bind_gpus(pin)

    def stays_bound(self, key: JobKey, original: ResourceRequest) -> bool:
        """Return whether Slurm keeps the job bound to GPUs of certain indices, whatever `unpin` is told."""
        return self._client.stays_bound(key, original)

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back."""
        details = dict.fromkeys(originals, "")
        return await self._in_pieces(
            "unpin", details, lambda piece: self._client.unpin({key: originals[key] for key in piece})
        )

    async def requeue_hold(self, why: Mapping[JobKey, str], *, paused: Collection[JobKey]) -> Failures:
        """Stop running jobs and put them back into the queue, held. The client checks that each is still as it was.

        `paused`: see `SlurmClient.requeue_hold`.
        """
        return await self._call("requeue_hold", why, lambda keys: self._client.requeue_hold(keys, paused=paused))

    async def signal(self, why: Mapping[JobKey, str], signal: str) -> Failures:
        """Send running jobs a signal, once."""
        return await self._call("signal", why, lambda keys: self._client.signal(keys, signal))

    async def _in_pieces(
        self, verb: str, details: Mapping[JobKey, str], call: Callable[[list[JobKey]], Awaitable[Failures]]
    ) -> Failures:
        """Make as many calls to Slurm as are needed; after one that is not answered, the others are not made."""
        failures = await self._pieces[verb].run(
            details, lambda piece: self._journaled(verb, {key: details[key] for key in piece}, call)
        )
        self._count(details, failures)
        return failures

    async def _call(
        self, verb: str, details: Mapping[JobKey, str], call: Callable[[list[JobKey]], Awaitable[Failures]]
    ) -> Failures:
        failures = await self._journaled(verb, details, call)
        self._count(details, failures)
        return failures

    async def _one_by_one(
        self, verb: str, keys: list[JobKey], call: Callable[[list[JobKey]], Awaitable[Failures]], error: Exception
    ) -> Failures:
        """Repeat a call that ended in an unexpected error for each job alone, which is harmless. The job that leads to it fails."""
        LEFT_OUT.note(f"calls to Slurm: {verb}", keys[0].job_id, error)
        failures: dict[JobKey, Failure] = {}
        for key in keys:
            try:
                failures |= await call([key]) if len(keys) > 1 else dict.fromkeys(keys, _not_called(error))
            except SlurmError as away:
                failures[key] = Failure(str(away), FailureReason.UNAVAILABLE)
            except HeadwayError:
                raise
            except Exception as own:  # noqa: BLE001 - see above
                failures[key] = _not_called(own)
        return failures

    def _count(self, details: Mapping[JobKey, str], failures: Failures) -> None:
        if any(key not in failures for key in details):
            self._refused_calls = 0
            self._refused_jobs.clear()
            return
        refused = [key for key, failure in failures.items() if failure.reason in _AT_FAULT]
        self._refused_calls += bool(refused)
        for key in refused:
            if len(self._refused_jobs) > 1:
                break
            self._refused_jobs.add(key.job_id)

    async def _journaled(
        self, verb: str, details: Mapping[JobKey, str], call: Callable[[list[JobKey]], Awaitable[Failures]]
    ) -> Failures:
        """Make one call, with its intent and its outcome. If slurmctld does not answer, every job of the call has failed."""
        self._before_change()
        numbers = self._journal.begin(verb, details, self._clock.now())
        try:
            failures = await call(list(details))
        except SlurmError as error:  # slurmctld is away, or its answer is not understood: the change may have been made
            failures = {key: Failure(str(error), FailureReason.UNAVAILABLE) for key in details}
        except HeadwayError:
            raise
        except Exception as error:  # noqa: BLE001 - one job must not stop all others
            failures = await self._one_by_one(verb, list(details), call, error)
        self._journal.finish(numbers, details, failures, self._clock.now())
        if any(key not in failures for key in details):
            self._progress()
        for key, failure in failures.items():
            if failure.gone or failure.not_ours:
                continue  # a job that has ended, or was cancelled or held by its user meanwhile, is no error
            self.errors += 1
            log.warning("slurm_refused", verb=verb, job=key.job_id, reason=failure.message)
            self._events.add("error", key.job_id, f"{verb}: {failure.message}")
        return failures


def _not_called(error: Exception) -> Failure:
    return Failure(f"Headway does not understand one of its values ({type(error).__name__})")
