"""Carries a plan out: the only part that changes anything in Slurm.

Every step is journaled before Slurm is asked and after. Each step can be repeated without harm: pinning a pinned job,
holding a held one and releasing a released one change nothing. What a killed controller left half-done is therefore not
replayed from the journal but seen in the next snapshot (a held job with our mark waits, a released one with a pin starts),
and the journal only closes the books.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import structlog

from controller.base.clock import Clock
from controller.base.errors import SlurmError
from controller.base.events import EventLog
from controller.cycle.decision.plan import Start
from controller.cycle.refusals import Verdict, refused_again
from controller.observe.observer import Observation
from controller.observe.resize import request_now
from controller.slurm.client import (
    HOLD_MARK,
    PIN_MARK,
    USER_HOLD_MARK,
    Failure,
    FailureReason,
    Failures,
    JobKey,
    Pin,
    ResourceRequest,
    SlurmClient,
    SlurmJob,
)
from controller.slurm.pieces import Pieces
from controller.slurm.user_holds import HoldFolder, hand_over, is_held_by_user, is_to_hand_over
from controller.state.journal import Journal
from controller.state.ledger import Ledger, PinRecord
from policies.model import Placement

log = structlog.get_logger(__name__)

_PIN_TRIES = 3
"""A job that could not be pinned so often, for reasons of its own, is given to Slurm."""
_PIECES_A_CYCLE = 8
_MOST_STARTS = 500
"""Jobs placed in one cycle at most: the next one decides on the rest, from a newer picture."""


class Applier:
    """Asks Slurm, journals, and keeps the ledger true. Invariant: no job is released whose pin was not read back."""

    def __init__(
        self,
        client: SlurmClient,
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
        holds: HoldFolder,
    ) -> None:
        self._client = client
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._holds = holds
        self._pin_failures: dict[JobKey, int] = {}
        self._pieces = Pieces()
        self.progress: Callable[[], None] = lambda: None
        """Called whenever Slurm has done something that was asked of it, in the middle of a long cycle too."""
        self.errors = 0
        self._refused_steps = 0
        self._refused_jobs: set[str] = set()
        """Ids of the jobs that these steps were about, two at most."""

    @property
    def refused_in_a_row(self) -> int:
        """Steps since Slurm last did anything that we asked for; what it did not hear of does not count.

        0 while all of them were about the same job, which may be at fault itself.
        """
        return self._refused_steps if len(self._refused_jobs) > 1 else 0

    @property
    def most_starts(self) -> int:
        """Jobs that one cycle may place: few where slurmctld is slow."""
        return min(_PIECES_A_CYCLE * self._pieces.size, _MOST_STARTS)

    def keep(self, jobs: Container[JobKey]) -> None:
        """Forget every other job."""
        if self._pin_failures:
            self._pin_failures = {key: count for key, count in self._pin_failures.items() if key in jobs}

    async def start(self, observation: Observation, starts: Sequence[Start], policy: str) -> None:
        """Pin the jobs where the plan says, then release those whose pin holds: piece by piece, until one is not answered."""
        by_key = {observation.rows[start.row].key: start for start in starts}
        await self._pieces.run(by_key, lambda keys: self._start(observation, [by_key[key] for key in keys], policy))

    async def _start(self, observation: Observation, starts: Sequence[Start], policy: str) -> Failures:
        """One piece. Returns the jobs that could not be started."""
        pins = {pin.key: pin for pin in (_pin(observation, start, self._ledger) for start in starts)}
        for start, pin in zip(starts, pins.values(), strict=True):
            self._remember(observation, start, pin, policy)
        self._journal.save_jobs(self._ledger, pins)
        described = {key: _describe(pin) for key, pin in pins.items()}
        failed = await self._step("pin", described, lambda: self._client.pin(list(pins.values())))
        if failed:
            await self._pins_failed(observation, failed)
        pinned = [key for key in pins if key not in failed]
        if not pinned:
            return failed
        unreleased, theirs = await self._release(observation.jobs, dict.fromkeys(pinned, ""))
        pinned = [key for key in pinned if key not in theirs]
        released = [key for key in pinned if key not in unreleased]
        for key in released:
            self._events.add("placed", key.job_id, f"{described[key]} by {policy}")
        await self._unmark(released, HOLD_MARK, PIN_MARK)
        for key in pinned:
            self._pin_failures.pop(key, None)
        # Of a release without an answer the next reading tells whether the job starts: until then its pin is remembered.
        await self._take_back(_reasons("could not be released", _answered(unreleased)))
        return {**failed, **unreleased}

    async def _pins_failed(self, observation: Observation, failed: Failures) -> None:
        """Try again later; a job that Slurm will not have pinned after several tries is Slurm's to place.

        A job whose pin was not answered stays held, and its own request in the ledger: the next pin changes what is left to change.
        """
        unheard = [key for key, failure in failed.items() if failure.unavailable]
        for key in unheard:
            self._ledger.pins.pop(key, None)
        if unheard:
            self._journal.save_jobs(self._ledger, unheard)
        hopeless = {}
        for key, failure in _answered(failed).items():
            if not failure.gone:
                self._pin_failures[key] = self._pin_failures.get(key, 0) + 1
                if self._pin_failures[key] >= _PIN_TRIES:
                    del self._pin_failures[key]
                    hopeless[key] = f"could not be pinned: {failure.message}"
        rest = {key: failure for key, failure in _answered(failed).items() if key not in hopeless}
        await self._take_back(_reasons("could not be pinned", rest))
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
            failed.update(await self._in_pieces("hold", dict.fromkeys(keys, "adopt"), self._client.hold))
        for job in jobs:
            failure = failed.get(job.key)
            if failure is None:
                self._events.add("held", job.key.job_id, "taken into the queue")
            elif not failure.gone and not failure.unavailable:
                self._ledger.yielded[job.key] = job.restarts  # what Slurm does not let us hold, it places itself
        self._journal.save_jobs(self._ledger, [job.key for job in jobs])
        return failed

    async def refuse(self, verdicts: Mapping[JobKey, Verdict]) -> None:
        """Released jobs that Slurm does not start: hold them again, give them their request back, and wait a while."""
        reasons = {key: verdict.why for key, verdict in verdicts.items()}
        failed = await self._in_pieces("hold", reasons, self._client.hold)
        unfit = {key for key, verdict in verdicts.items() if verdict.blames_nodes}
        said = {key: verdict.slurm_reason for key, verdict in verdicts.items()}
        await self._take_back({key: (why, True) for key, why in reasons.items() if key not in failed}, unfit, said)

    def put_off(self, alike: Mapping[JobKey, JobKey]) -> None:
        """Jobs for which another's refusal goes too wait as long as it does. Not journaled: it can be found out again."""
        for key, like in alike.items():
            refusal = self._ledger.refusals.get(like)
            if refusal is not None:
                own = self._ledger.refusals.get(key)
                unfit, places = (own.unfit, own.places) if own is not None else ("", 0)
                self._ledger.refusals[key] = replace(refusal, like=like.job_id, unfit=unfit, places=places)

    async def give_to_slurm(self, jobs: Mapping[JobKey, SlurmJob], why: Mapping[JobKey, str]) -> None:
        """Release jobs as they are, for Slurm to place; they are not adopted again for this run."""
        keys = list(why)
        for key in keys:
            self._ledger.yielded[key] = jobs[key].restarts
            self._ledger.elsewhere.pop(key, None)  # Slurm knows nothing of it, and gets the user's own request
        self._journal.save_jobs(self._ledger, keys)
        # Slurm's own hold of a job that it cannot run ends with the first change of it: half of its request would be its old one.
        impossible = [key for key in keys if jobs[key].is_impossible and key in self._ledger.originals]
        failed = dict(await self._in_pieces("hold", {key: why[key] for key in impossible}, self._client.hold))
        failed |= await self._unpin([key for key in keys if key not in failed])
        free = [key for key in keys if key not in failed]
        if free:
            unreleased, theirs = await self._release(jobs, {key: why[key] for key in free})
            failed.update(unreleased)
            failed.update(dict.fromkeys(theirs, Failure("its user holds it")))
        for key in keys:
            self._ledger.pins.pop(key, None)
            if key in failed:
                self._ledger.yielded.pop(key, None)
            else:
                self._ledger.refusals.pop(key, None)
                self._events.add("released", key.job_id, f"given to Slurm to place: {why[key]}")
        await self._unmark([key for key in keys if key not in failed])
        await self._unmark([key for key in keys if key not in failed and jobs[key].has_pin_mark], PIN_MARK)
        self._journal.save_jobs(self._ledger, keys)

    async def hand_over(self, jobs: Iterable[SlurmJob]) -> set[JobKey]:
        """Jobs among these whose users hold them, and which are not their users' yet, become so. Returns which."""
        holds = self._holds.read()
        theirs = [job for job in jobs if is_held_by_user(job, holds) and is_to_hand_over(job)] if holds else []
        if theirs:
            await self._make_theirs(theirs)
        return {job.key for job in theirs}

    async def _make_theirs(self, jobs: Sequence[SlurmJob]) -> set[JobKey]:
        """Returns those that are held now: the others have been started, or Slurm does not answer."""
        held = await hand_over(self, self._holds, jobs)
        await self._take_back(dict.fromkeys(held, ("its user holds it", False)))
        return held

    async def finish_hand_over(self, keys: Sequence[JobKey]) -> None:
        """The last part of `hand_over`, for jobs in which it was interrupted before, and whose holds are not written down (now)."""
        failed = await self._unmark(keys, USER_HOLD_MARK if self._holds.is_complete else HOLD_MARK) if keys else {}
        if not failed:
            self._holds.completed()

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold jobs for their users, for now with our mark."""
        return await self._in_pieces("hold", dict.fromkeys(keys, "its user holds it"), self._client.hold)

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a mark of ours."""
        return await self._in_pieces("mark", dict.fromkeys(keys, mark), lambda piece: self._client.mark(piece, mark))

    async def unmark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Take a mark of ours away."""
        return await self._unmark(keys, mark)

    async def _release(
        self, jobs: Mapping[JobKey, SlurmJob], why: Mapping[JobKey, str]
    ) -> tuple[Failures, set[JobKey]]:
        """Release jobs, but not those whose users hold them. Returns what failed, and those that are their users' own now.

        A hold may come between the look at the folder and the release. So there is another look right after, and a job that has
        not started by then is held again.
        """
        theirs = await self.hand_over(jobs[key] for key in why)
        free = {key: text for key, text in why.items() if key not in theirs}
        if not free:
            return {}, theirs
        failed = await self._in_pieces("release", free, self._client.release)
        holds = self._holds.read()
        late = [key for key in free if is_held_by_user(jobs[key], holds)]
        if late:
            with suppress(SlurmError):  # the next cycle looks again
                found = (await self._client.read(late)).values()
                theirs |= await self._make_theirs([job for job in found if is_to_hand_over(job)])
        return {key: failure for key, failure in failed.items() if key not in theirs}, theirs

    async def stop(self, why: Mapping[JobKey, str]) -> Failures:
        """Take running jobs off their nodes, back into the queue, held. The verb itself looks whether each is as it was."""
        keys = list(why)
        return await self._step("requeue_hold", why, lambda: self._client.requeue_hold(keys))

    async def leave(self, keys: Sequence[JobKey]) -> None:
        """Jobs that were to be stopped run on: a hold that comes later is somebody else's."""
        await self._unmark(keys)

    async def arrived(self, keys: Sequence[JobKey]) -> Failures:
        """Jobs that were placed have started. Returns those that could not be told so."""
        return await self._unmark(keys, PIN_MARK)

    async def signal(self, why: Mapping[JobKey, str], signal: str) -> Failures:
        """Send running jobs a signal, once."""
        keys = list(why)
        return await self._step("signal", why, lambda: self._client.signal(keys, signal))

    async def _unmark(self, keys: Sequence[JobKey], mark: str = HOLD_MARK, instead: str = "") -> Failures:
        """What is released is not ours to hold: a hold that comes later is somebody else's."""
        if not keys:
            return {}
        return await self._in_pieces(
            "unmark", dict.fromkeys(keys, mark), lambda piece: self._client.unmark(piece, mark, instead)
        )

    async def _unpin(self, keys: Iterable[JobKey]) -> Failures:
        """Give jobs their own request back, as far as one of ours may stand in its place."""
        originals: dict[JobKey, ResourceRequest] = {
            key: self._ledger.originals[key] for key in keys if key in self._ledger.originals
        }
        if not originals:
            return {}
        failed = await self._in_pieces(
            "unpin",
            dict.fromkeys(originals, ""),
            lambda piece: self._client.unpin({key: originals[key] for key in piece}),
        )
        for key in originals:
            if key not in failed:
                del self._ledger.originals[key]
        return failed

    async def _take_back(
        self,
        reasons: Mapping[JobKey, tuple[str, bool]],
        unfit: Set[JobKey] = frozenset(),
        slurm_reasons: Mapping[JobKey, str] = MappingProxyType({}),
    ) -> None:
        """Held jobs that were pinned: their own request back, and, where Slurm said no (True), a pause before the next try.

        `unfit`: jobs that are to be placed elsewhere for a while.
        """
        if not reasons:
            return
        await self._unpin(reasons)
        now_s = self._clock.now()
        for key, (reason, refused) in reasons.items():
            pin = self._ledger.pins.pop(key, None)
            if not refused:
                continue
            blamed = key in unfit and pin is not None
            nodes = pin.nodes if blamed and pin is not None else ()
            said = slurm_reasons.get(key, "")
            before = self._ledger.refusals.get(key)
            refusal = refused_again(before, reason, now_s, nodes, blames_nodes=blamed, slurm_reason=said)
            self._ledger.refusals[key] = refusal
            elsewhere = f", not on {refusal.unfit}" if blamed else ""
            self._events.add("held", key.job_id, f"{reason}; next try in {refusal.retry_at_s - now_s:.0f} s{elsewhere}")
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

    async def _in_pieces(
        self, verb: str, details: Mapping[JobKey, str], call: Callable[[list[JobKey]], Awaitable[Failures]]
    ) -> Failures:
        """As many calls to Slurm as it takes; those after one that is not answered are not made."""
        failures = await self._pieces.run(
            details, lambda piece: self._ask(verb, {key: details[key] for key in piece}, partial(call, piece))
        )
        self._count(details, failures)
        return failures

    async def _step(
        self, verb: str, details: Mapping[JobKey, str], call: Callable[[], Awaitable[Failures]]
    ) -> Failures:
        """One call to Slurm."""
        failures = await self._ask(verb, details, call)
        self._count(details, failures)
        return failures

    def _count(self, details: Mapping[JobKey, str], failures: Failures) -> None:
        if any(key not in failures for key in details):
            self._refused_steps = 0
            self._refused_jobs.clear()
            return
        refused = [key for key, failure in failures.items() if not (failure.gone or failure.unavailable)]
        self._refused_steps += bool(refused)
        for key in refused:
            if len(self._refused_jobs) > 1:
                break
            self._refused_jobs.add(key.job_id)

    async def _ask(self, verb: str, details: Mapping[JobKey, str], call: Callable[[], Awaitable[Failures]]) -> Failures:
        """One call to Slurm with its intent and its outcome. slurmctld being away is a failure of every job in it."""
        numbers = self._journal.begin(verb, details, self._clock.now())
        try:
            failures = await call()
        except SlurmError as error:  # away, or not understood: either way it may have happened or not
            failures = {key: Failure(str(error), FailureReason.UNAVAILABLE) for key in details}
        self._journal.finish(numbers, details, failures, self._clock.now())
        if any(key not in failures for key in details):
            self.progress()
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


def _answered(failures: Failures) -> dict[JobKey, Failure]:
    """Failures that Slurm itself has told of."""
    return {key: failure for key, failure in failures.items() if not failure.unavailable}


def _describe(pin: Pin) -> str:
    per_node = "" if pin.gpus_per_node is None else f":{pin.gpus_per_node}"
    return ",".join(f"{node}{per_node}" for node in pin.nodes)


def describe_placement(names: Iterable[str], gpus: Iterable[int]) -> str:
    """ "n1:8,n2:4"."""
    return ",".join(f"{name}:{count}" for name, count in zip(names, gpus, strict=True))
