"""The changing verbs, for every client that can carry out a command and read jobs back.

controller.slurm.updates.changes decides what to change, and controller.slurm.updates.rounds sends it until nothing is left to
change. So no verb calls a job done that was not read back as wanted. Many jobs are changed, and read, in pieces.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.base.errors import SlurmError, SlurmUnavailableError
from controller.slurm.client import Failure, FailureReason, Failures, Pin
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.slurm.records import without_false_bound
from controller.slurm.updates import changes
from controller.slurm.updates.changes import gone
from controller.slurm.updates.found import Found
from controller.slurm.updates.gpu_binding import IndexedGpus, is_bound, may_bind
from controller.slurm.updates.pieces import Pieces
from controller.slurm.updates.rounds import FRESH_S, Rounds

_SIGNAL = re.compile(r"[A-Z0-9]+")
_CLOCK_S = 0.02
"""Seconds after which a second has surely begun for slurmctld too."""
_FIRST_READ = 256
_MOST_CORRECTED = 20_000
_MOST_ENDED_FIRST = 1000
_MOST_READ = 1000
"""Size of the largest piece that is read: reading a job by its id costs slurmctld less than changing it."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """A requeue, with the job right before and right after it."""

    before: SlurmJob | None
    after: SlurmJob | None
    complaint: str


class Verbs(Rounds):
    """The part of a SlurmClient that changes jobs.

    Invariant: that of `Rounds`; and no request to Slurm is about more jobs than `Pieces` allows. Not for use by several tasks at
    once.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._monotonic = time.monotonic
        self._reading = Pieces(_FIRST_READ, _MOST_READ)
        self._ended_first: set[JobKey] = set()
        """Jobs that had ended when they were to be stopped, and still have our mark: Headway must not place them. Few: they are
        here only until Slurm has taken off the mark. Bound: `_MOST_ENDED_FIRST`."""
        self._largest = 0
        """GPUs of the largest node of the last snapshot; 0: not known."""
        self._indexed = IndexedGpus()
        self._corrected: dict[JobKey, tuple[SlurmJob, SlurmJob]] = {}
        """Jobs as they were read, and without a false maximum of nodes. Bound: `_MOST_CORRECTED`."""

    # ---- methods that a client implements

    @abstractmethod
    async def send_signal(self, job: SlurmJob, signal: str) -> str | None:
        """Send a signal to all processes of the job. Returns Slurm's objection, if any."""

    @abstractmethod
    async def requeue(self, job: SlurmJob) -> Requeue:
        """Requeue the job and hold it. The job is read right before and right after."""

    @abstractmethod
    def _reads_all(self, keys: Sequence[JobKey]) -> bool:
        """Return whether reading all jobs is cheaper than reading these."""

    # ---- reading

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs only; those that are gone are left out."""
        return {key: self._without_false_bound(found.job) for key, found in (await self._find_all(keys)).items()}

    def _without_false_bound(self, job: SlurmJob) -> SlurmJob:
        """Return the job without a maximum of one node that Slurm only shows. The same object while Slurm shows the same job."""
        if not job.request.max_nodes_in_doubt:
            return job
        known, corrected = self._corrected.get(job.key, (None, None))
        if known is not job or corrected is None:
            corrected = without_false_bound(job, self._largest)
            if len(self._corrected) >= _MOST_CORRECTED:
                self._corrected.clear()
            self._corrected[job.key] = (job, corrected)
        return corrected

    async def _find_all(self, keys: Sequence[JobKey]) -> dict[JobKey, Found]:
        """Read any number of jobs. Raises SlurmError unless all of them could be read."""
        if self._reads_all(keys):
            return await self._find(keys)
        found: dict[JobKey, Found] = {}

        async def find(piece: list[JobKey]) -> Failures:
            found.update(await self._find(piece))
            return {}

        unread = await self._reading.run(keys, find)
        if unread:
            raise SlurmUnavailableError(next(iter(unread.values())).message)
        return found

    # ---- the verbs

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold pending jobs and put HOLD_MARK into their admin comment (added, never overwritten), in the place of PIN_MARK."""
        self._ended_first.difference_update(keys)  # a job that is to be held again was released meanwhile
        for key in keys:
            known = self._memory.get(key)
            if known is not None and not known.job.marks and not known.job.has_pin_mark:
                self._memory.drop(key.job_id)  # its user may have held it since
        return await self._change(keys, lambda found: changes.hold_step(found, HOLD_MARK))

    async def unmark(
        self, keys: Sequence[JobKey], mark: str, instead: str = "", *, unless_held: bool = False
    ) -> Failures:
        """Remove one of our tokens from the admin comment, and add another one; the rest of it stays."""
        if unless_held:
            for key in keys:
                self._memory.drop(key.job_id)  # it may have been held since
        failures = await self._change(
            keys, lambda found: changes.unmark_step(found, mark, instead, unless_held=unless_held)
        )
        return {key: self._unless_ending(key, failure) for key, failure in failures.items()}

    def _unless_ending(self, key: JobKey, failure: Failure) -> Failure:
        """Return the failure as that of a job that is gone if Slurm refuses a change because the job's last run is ending."""
        known = self._memory.get(key) if failure.reason is FailureReason.REFUSED else None
        ending = known is not None and known.job.phase is Phase.COMPLETING
        return replace(failure, reason=FailureReason.GONE) if ending else failure

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add one of our tokens to the admin comment; the rest of it stays."""
        return await self._change(keys, lambda found: changes.mark_step(found, mark))

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes, and let them start as soon as they are released (begin time = now)."""
        not_ours = await self._leave_those_that_had_ended([pin.key for pin in pins])
        by_key = {pin.key: self._with_gpus(pin) for pin in pins if pin.key not in not_ours}
        # "Now" is when a step looks: a slow slurmctld carries out "start now" seconds after it was told.
        failed = await self._change(
            list(by_key), lambda found: changes.pin_step(found, by_key[found.job.key], self._now())
        )
        return {**not_ours, **failed}

    def can_bind_gpus(self, pin: Pin) -> bool:
        """Return whether each GPU of the nodes has a GRES type of its own (g0, g1, ...), and the job can ask for these types."""
        found = self._memory.get(pin.key)
        return found is not None and may_bind(found.record, pin) and self._indexed.have(pin)

    def stays_bound(self, key: JobKey, original: ResourceRequest) -> bool:
        """Return whether the job, by its last reading, is bound to GPUs by index: `unpin` does not give it these back."""
        found = self._memory.get(key)
        return found is not None and is_bound(found.record, original)

    def _with_gpus(self, pin: Pin) -> Pin:
        """Return the pin, with free GPUs if the job is bound to some by an earlier pin and this one names none."""
        if pin.gpu_masks and not self.can_bind_gpus(pin):
            pin = replace(pin, gpu_masks=())
        if not pin.gpu_masks and pin.gpus_per_node and self.stays_bound(pin.key, pin.original):
            mask = self._indexed.choose(pin.nodes, pin.gpus_per_node)
            pin = replace(pin, gpu_masks=(mask,) * len(pin.nodes) if mask else ())
        if pin.gpu_masks:
            self._indexed.promise(pin.nodes, pin.gpu_masks[0])
        return pin

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back. See controller.slurm.updates.changes for values that Slurm cannot remove."""
        return await self._change(list(originals), lambda found: changes.unpin_step(found, originals[found.job.key]))

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Set the earliest start (Unix time); None: now."""
        return await self._change(keys, lambda found: changes.begin_step(found.job, begin_time_s, self._now()))

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Release the jobs: Slurm may start them from now on; those that were requeued in this second, from the next one on.

        A node does not launch a job in the second in which it killed an earlier run of it ("already killed, do not launch"), and
        Slurm then fails the job for good. By itself Slurm waits for two minutes after a requeue, which `pin` and `set_begin_time`
        shorten.
        """
        not_ours = await self._leave_those_that_had_ended(keys)
        ours = [key for key in keys if key not in not_ours]
        young = await self._requeued_in_this_second(ours)
        others = [key for key in ours if key not in young]
        failures = {**not_ours, **await self._change(others, changes.release_step, trusting=True)}
        if young:
            left_s = math.floor(self._now()) + 1 - self._now()
            await asyncio.sleep(left_s + _CLOCK_S)
            failures |= await self._change(young, changes.release_step, trusting=True)
        return failures

    async def _requeued_in_this_second(self, keys: Sequence[JobKey]) -> list[JobKey]:
        """Return those of the jobs that were requeued since the present second began; a requeue is a new submission."""
        new = [key for key in keys if key.submit_time_s >= math.floor(self._now())]
        known = {key: self._memory.get(key, FRESH_S) for key in new}
        unknown = [key for key, found in known.items() if found is None]
        read = await self._find_all(unknown) if unknown else {}
        return [key for key, found in {**known, **read}.items() if found is not None and found.job.restarts > 0]

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal to batch shell and tasks."""
        if not _SIGNAL.fullmatch(signal):
            raise ValueError(f"not a signal: {signal!r}")
        found = await self._find_all(keys)

        async def send(key: JobKey) -> Failure | None:
            if key not in found:
                return gone(key)
            if (job := found[key].job).phase is not Phase.RUNNING:
                return Failure(f"is {job.state}, not running")
            self.before_change()
            complaint = await self.send_signal(job, signal)
            return None if complaint is None else Failure(complaint)

        return await _one_by_one(keys, send)

    async def requeue_hold(self, keys: Sequence[JobKey], *, paused: Collection[JobKey] = ()) -> Failures:
        """Stop running jobs and put them back into the queue, held and marked. Ended jobs are failures, never restarted.

        The mark comes first, so that a job is never held without a mark. Slurm also requeues jobs that have just ended (see
        `changes.was_stopped`). Such a job is left held without our mark, and its user or an operator decides: both to restart it
        and to cancel it could destroy something. `paused`: see `SlurmClient.requeue_hold`.
        """
        before = await self._find_all(keys)
        failures = {
            key: refusal for key in keys if (refusal := changes.requeue_refusal(before.get(key), key)) is not None
        }
        stoppable = [key for key in dict.fromkeys(keys) if key not in failures]
        # The user released the hold before the job ran. Both marks together would say that the user holds the job.
        released = [key for key in stoppable if not before[key].job.held and USER_HOLD_MARK in before[key].job.marks]
        failures.update(await self.unmark(released, USER_HOLD_MARK, HOLD_MARK) if released else {})
        # Headway never holds a running job. If one is held without our mark, its user releases it.
        theirs = [key for key in stoppable if before[key].job.held and HOLD_MARK not in before[key].job.marks]
        failures.update(await self.mark(theirs, USER_HOLD_MARK) if theirs else {})
        others = [key for key in stoppable if key not in released and key not in theirs]
        failures.update(await self.mark(others, HOLD_MARK) if others else {})
        marked = [key for key in stoppable if key not in failures]
        return failures | await _one_by_one(marked, lambda key: self._requeue_one(before[key].job, key in paused))

    async def _requeue_one(self, job: SlurmJob, is_paused: bool) -> Failure | None:
        self.before_change()
        begun_s = self._monotonic()
        done = await self.requeue(job)
        self._memory.drop(job.key.job_id)
        after = done.after
        if after is None:
            return gone(job.key)
        if changes.was_stopped(done.before, after, self._monotonic() - begun_s, is_paused):
            return None if after.held else Failure("was requeued, but is not held")
        if after.restarts == job.restarts:
            await self.unmark([after.key], HOLD_MARK)
            return Failure(done.complaint or f"is {after.state}, not requeued")
        if len(self._ended_first) >= _MOST_ENDED_FIRST:
            self._ended_first.pop()  # the others have been gone for long
        self._ended_first.add(after.key)
        marked = ""
        try:
            await self._leave_those_that_had_ended([after.key])
        except SlurmError as error:
            marked = f" (it still has Headway's mark, which Headway removes before any other change: {error})"
        return changes.ended_first(job.key.job_id, marked)

    async def _leave_those_that_had_ended(self, keys: Sequence[JobKey]) -> dict[JobKey, Failure]:
        """Remove our mark from the jobs that had ended before they could be stopped, and return these: none is placed."""
        not_ours = [key for key in keys if key in self._ended_first]
        failed = await self.unmark(not_ours, HOLD_MARK) if not_ours else {}
        self._ended_first.difference_update(key for key in not_ours if key not in failed or failed[key].gone)
        had_ended = Failure("had ended before it was to be stopped", FailureReason.NOT_OURS)
        return {key: failed.get(key, had_ended) for key in not_ours}


async def _one_by_one(
    keys: Iterable[JobKey], work: Callable[[JobKey], Awaitable[Failure | None]]
) -> dict[JobKey, Failure]:
    """Do the work for each job by itself. After a job that slurmctld did not answer, the others are not tried."""
    failures: dict[JobKey, Failure] = {}
    unheard: Failure | None = None
    for key in keys:
        failure = unheard
        if failure is None:
            try:
                failure = await work(key)
            except SlurmError as error:
                failure = unheard = Failure(str(error), FailureReason.UNAVAILABLE)
        if failure is not None:
            failures[key] = failure
    return failures
