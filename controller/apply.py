"""Carries a plan out: the only part that changes anything in Slurm.

Every step is journaled before Slurm is asked and after. Each step can be repeated without harm: pinning a pinned job,
holding a held one and releasing a released one change nothing. What a killed controller left half-done is therefore not
replayed from the journal but seen in the next snapshot (a held job with our mark waits, a released one with a pin starts),
and the journal only closes the books.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from controller.clock import Clock
from controller.errors import SlurmError
from controller.events import EventLog
from controller.journal import Journal
from controller.ledger import Ledger, PinRecord, Refusal
from controller.observe import Observation
from controller.plan import Start
from controller.resize import request_now
from controller.scope import LAST_RETRY_S
from controller.slurm.client import (
    HOLD_MARK,
    USER_HOLD_MARK,
    Failure,
    Failures,
    JobKey,
    Pin,
    ResourceRequest,
    SlurmClient,
    SlurmJob,
)
from policies.model import Placement

log = structlog.get_logger(__name__)

_FIRST_RETRY_S = 5.0
_PIN_TRIES = 3
"""A job that could not be pinned so often, for reasons of its own, is given to Slurm."""


class Applier:
    """Asks Slurm, journals, and keeps the ledger true. Invariant: no job is released whose pin was not read back."""

    def __init__(self, client: SlurmClient, journal: Journal, ledger: Ledger, events: EventLog, clock: Clock) -> None:
        self._client = client
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._pin_failures: dict[JobKey, int] = {}
        self.errors = 0
        self.refused_in_a_row = 0
        """Steps since Slurm last did anything that we asked for; what it did not hear of does not count."""

    async def start(self, observation: Observation, starts: Sequence[Start], policy: str) -> None:
        """Pin the jobs where the plan says, then release those whose pin holds."""
        pins = [_pin(observation, start, self._ledger) for start in starts]
        for start, pin in zip(starts, pins, strict=True):
            self._remember(observation, start, pin, policy)
        self._journal.save_jobs(self._ledger, [pin.key for pin in pins])
        described = {pin.key: _describe(pin) for pin in pins}
        failed = await self._step("pin", described, lambda: self._client.pin(pins))
        pinned = [pin.key for pin in pins if pin.key not in failed]
        if failed:
            await self._pins_failed(observation, failed)
        if not pinned:
            return
        unreleased = await self._step("release", dict.fromkeys(pinned, ""), lambda: self._client.release(pinned))
        released = [key for key in pinned if key not in unreleased]
        for key in released:
            self._events.add("placed", key.job_id, f"{described[key]} by {policy}")
        await self._unmark(released)
        for key in pinned:
            self._pin_failures.pop(key, None)
        if unreleased:
            await self._take_back(_reasons("could not be released", unreleased))

    async def _pins_failed(self, observation: Observation, failed: Failures) -> None:
        """Try again later; a job that Slurm will not have pinned after several tries is Slurm's to place."""
        hopeless = {}
        for key, failure in failed.items():
            if not failure.unavailable and not failure.gone:
                self._pin_failures[key] = self._pin_failures.get(key, 0) + 1
                if self._pin_failures[key] >= _PIN_TRIES:
                    del self._pin_failures[key]
                    hopeless[key] = f"could not be pinned: {failure.message}"
        await self._take_back(_reasons("could not be pinned", {k: f for k, f in failed.items() if k not in hopeless}))
        if hopeless:
            await self.give_to_slurm(observation.jobs, hopeless)

    async def adopt(self, jobs: Sequence[SlurmJob]) -> Failures:
        """Hold pending jobs that Slurm may start any moment, so that the policy places them."""
        # A job that its user has released is not the user's to hold any more. That mark goes first, and where it stays we
        # do not hold either: a job with both marks would be taken for one that its user wants held.
        failed = dict(await self._unmark([job.key for job in jobs if USER_HOLD_MARK in job.marks], USER_HOLD_MARK))
        keys = [job.key for job in jobs if job.key not in failed]
        for key in keys:
            self._ledger.pins.pop(key, None)
        if keys:
            failed.update(await self._step("hold", dict.fromkeys(keys, "adopt"), lambda: self._client.hold(keys)))
        for job in jobs:
            failure = failed.get(job.key)
            if failure is None:
                self._events.add("held", job.key.job_id, "taken into the queue")
            elif not failure.gone and not failure.unavailable:
                self._ledger.yielded[job.key] = job.restarts  # what Slurm does not let us hold, it places itself
        self._journal.save_jobs(self._ledger, [job.key for job in jobs])
        return failed

    async def refuse(self, reasons: Mapping[JobKey, str]) -> None:
        """Released jobs that Slurm does not start: hold them again, give them their request back, and wait a while."""
        keys = list(reasons)
        failed = await self._step("hold", reasons, lambda: self._client.hold(keys))
        await self._take_back({key: (reasons[key], True) for key in keys if key not in failed})

    def put_off(self, alike: Mapping[JobKey, JobKey]) -> None:
        """Jobs for which another's refusal goes too wait as long as it does. Not journaled: it can be found out again."""
        for key, like in alike.items():
            refusal = self._ledger.refusals.get(like)
            if refusal is not None:
                self._ledger.refusals[key] = replace(refusal, like=like.job_id)

    async def give_to_slurm(self, jobs: Mapping[JobKey, SlurmJob], why: Mapping[JobKey, str]) -> None:
        """Release jobs as they are, for Slurm to place; they are not adopted again for this run."""
        keys = list(why)
        for key in keys:
            self._ledger.yielded[key] = jobs[key].restarts
            self._ledger.elsewhere.pop(key, None)  # Slurm knows nothing of it, and gets the user's own request
        self._journal.save_jobs(self._ledger, keys)
        failed = dict(await self._unpin(keys))
        free = [key for key in keys if key not in failed]
        if free:
            failed.update(
                await self._step("release", {key: why[key] for key in free}, lambda: self._client.release(free))
            )
        for key in keys:
            self._ledger.pins.pop(key, None)
            if key in failed:
                self._ledger.yielded.pop(key, None)
            else:
                self._events.add("released", key.job_id, f"given to Slurm to place: {why[key]}")
        await self._unmark([key for key in keys if key not in failed])
        self._journal.save_jobs(self._ledger, keys)

    async def hold_for_user(self, jobs: Sequence[SlurmJob]) -> None:
        """A user asked for a hold of a job that Headway already holds: from now on it is the user's hold."""
        keys = [job.key for job in jobs]
        failed = await self._step(
            "mark", dict.fromkeys(keys, USER_HOLD_MARK), lambda: self._client.mark(keys, USER_HOLD_MARK)
        )
        await self._unmark([key for key in keys if key not in failed])

    async def finish_hold_for_user(self, keys: Sequence[JobKey]) -> None:
        """The second half of `hold_for_user`, for jobs in which it was interrupted after the first."""
        await self._unmark(keys)

    async def stop(self, why: Mapping[JobKey, str]) -> Failures:
        """Take running jobs off their nodes, back into the queue, held. The verb itself looks whether each is as it was."""
        keys = list(why)
        return await self._step("requeue_hold", why, lambda: self._client.requeue_hold(keys))

    async def leave(self, keys: Sequence[JobKey]) -> None:
        """Jobs that were to be stopped run on: a hold that comes later is somebody else's."""
        await self._unmark(keys)

    async def signal(self, why: Mapping[JobKey, str], signal: str) -> Failures:
        """Send running jobs a signal, once."""
        keys = list(why)
        return await self._step("signal", why, lambda: self._client.signal(keys, signal))

    async def _unmark(self, keys: Sequence[JobKey], mark: str = HOLD_MARK) -> Failures:
        """What is released is not ours to hold: a hold that comes later is somebody else's."""
        if not keys:
            return {}
        return await self._step("unmark", dict.fromkeys(keys, mark), lambda: self._client.unmark(keys, mark))

    async def _unpin(self, keys: Iterable[JobKey]) -> Failures:
        """Give jobs their own request back, as far as one of ours may stand in its place."""
        originals: dict[JobKey, ResourceRequest] = {
            key: self._ledger.originals[key] for key in keys if key in self._ledger.originals
        }
        if not originals:
            return {}
        failed = await self._step("unpin", dict.fromkeys(originals, ""), lambda: self._client.unpin(originals))
        for key in originals:
            if key not in failed:
                del self._ledger.originals[key]
        return failed

    async def _take_back(self, reasons: Mapping[JobKey, tuple[str, bool]]) -> None:
        """Held jobs that were pinned: their own request back, and, where Slurm said no (True), a pause before the next try."""
        if not reasons:
            return
        await self._unpin(reasons)
        now_s = self._clock.now()
        for key, (reason, refused) in reasons.items():
            before = self._ledger.refusals.get(key)
            self._ledger.pins.pop(key, None)
            if not refused:
                continue
            count = before.count + 1 if before else 1
            pause_s = min(_FIRST_RETRY_S * 2 ** (count - 1), LAST_RETRY_S)
            self._ledger.refusals[key] = Refusal(reason, now_s, now_s + pause_s, count)
            self._events.add("held", key.job_id, f"{reason}; next try in {pause_s:.0f} s")
        self._journal.save_jobs(self._ledger, reasons)

    def _remember(self, observation: Observation, start: Start, pin: Pin, policy: str) -> None:
        job = observation.rows[start.row]
        self._ledger.originals.setdefault(pin.key, job.request)
        self._ledger.pins[pin.key] = PinRecord(
            nodes=pin.nodes,
            gpus=start.placement.gpus,
            restarts=job.restarts,
            pinned_at_s=self._clock.now(),
            policy=policy,
            reason=start.reason,
        )

    async def _step(
        self, verb: str, details: Mapping[JobKey, str], call: Callable[[], Awaitable[Failures]]
    ) -> Failures:
        """One call to Slurm with its intent and its outcome. slurmctld being away is a failure of every job in it."""
        numbers = self._journal.begin(verb, details, self._clock.now())
        try:
            failures = await call()
        except SlurmError as error:  # away, or not understood: either way it may have happened or not
            failures = {key: Failure(str(error), unavailable=True) for key in details}
        self._journal.finish(numbers, details, failures, self._clock.now())
        if any(key not in failures for key in details):
            self.refused_in_a_row = 0
        elif not all(failure.gone or failure.unavailable for failure in failures.values()):
            self.refused_in_a_row += 1
        for key, failure in failures.items():
            if failure.gone:
                continue  # a job that has ended or was cancelled meanwhile is no error
            self.errors += 1
            log.warning("slurm_refused", verb=verb, job=key.job_id, reason=failure.message)
            self._events.add("error", key.job_id, f"{verb}: {failure.message}")
        return failures


def _pin(observation: Observation, start: Start, ledger: Ledger) -> Pin:
    job = observation.rows[start.row]
    placement: Placement = start.placement
    names = observation.state.nodes.names
    even = len(set(placement.gpus)) == 1
    sent = ledger.elsewhere.get(job.key)
    return Pin(
        key=job.key,
        nodes=tuple(names[node] for node in placement.nodes),
        gpus_per_node=placement.gpus[0] if even else None,
        original=request_now(job, ledger),
        resized=sent is not None and sent.gpus is not None,
    )


def _reasons(what: str, failures: Failures) -> dict[JobKey, tuple[str, bool]]:
    """(reason, whether Slurm said no) for each."""
    return {key: (f"{what}: {failure.message}", not failure.unavailable) for key, failure in failures.items()}


def _describe(pin: Pin) -> str:
    per_node = "" if pin.gpus_per_node is None else f":{pin.gpus_per_node}"
    return ",".join(f"{node}{per_node}" for node in pin.nodes)


def describe_placement(names: Iterable[str], gpus: Iterable[int]) -> str:
    """ "n1:8,n2:4"."""
    return ",".join(f"{name}:{count}" for name, count in zip(names, gpus, strict=True))
