"""Carries a plan out: places jobs, takes them into the queue, and gives them to Slurm.

Every step is journaled before Slurm is called and after. Each step can be repeated without harm: to pin a pinned job, to
hold a held one or to release a released one changes nothing. So the unfinished steps of a killed controller are not
replayed from the journal: the next snapshot shows their result (a held job with our mark waits, a released one with a pin
starts), and the journal records it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from controller.base.apart import apart, together_or_apart
from controller.base.clock import Clock
from controller.base.errors import SlurmError
from controller.base.events import EventLog
from controller.cycle.decision.plan import Start
from controller.cycle.refusals import Verdict, refused_again
from controller.cycle.steps.chosen_gpus import chosen_text
from controller.cycle.steps.hand_over import HandOver
from controller.cycle.steps.overtaken import overtaken
from controller.cycle.steps.own_requests import OwnRequests
from controller.cycle.steps.verbs import JournaledVerbs
from controller.observe.observer import Observation
from controller.observe.resize import request_now
from controller.preempt.text import constraint_text
from controller.slurm.client import Failure, FailureReason, Failures, Pin
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.state.hidden_bounds import is_complete, is_hidden_later
from controller.state.journal import Journal
from controller.state.ledger import Ledger, PinRecord, Refusal
from policies.model import Placement
from policies.state.gpu_layout import gpus_text

_PIN_TRIES = 3
"""Number of refused pins of one job after which it is given to Slurm."""
_FRESH_S = 1.0
"""Age of a snapshot, seconds, from which jobs are read again before they are placed, and nodes before jobs are released there."""
_STRANGE = Failure("it has a value that Headway does not understand")
_NOT_REFUSED = Refusal("", 0.0, 0.0, 0)


class Applier:
    """Changes the queue and updates the ledger. Invariant: no job is released whose pin was not read back."""

    def __init__(
        self,
        verbs: JournaledVerbs,
        own_requests: OwnRequests,
        hand_over: HandOver,
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
    ) -> None:
        self._verbs = verbs
        self._own_requests = own_requests
        self._hand_over = hand_over
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._pin_failures: dict[JobKey, int] = {}
        """Number of failed pins in a row of each job. Bound: the jobs in scope."""
        self._changed: dict[JobKey, SlurmJob] = {}
        """Jobs that had changed since the decision on them, as they were then. Bound: the jobs in scope."""
        self._not_given_until: dict[JobKey, float] = {}
        """Monotonic time of the next attempt to give a job to Slurm that Slurm has refused to take. Bound: the jobs whose time is
        to come, when the last was added."""

    def keep(self, jobs: Container[JobKey]) -> None:
        """Forget the failed pins and the changes of all other jobs."""
        if self._changed:
            self._changed = {key: job for key, job in self._changed.items() if key in jobs}
        if self._pin_failures:
            self._pin_failures = {key: count for key, count in self._pin_failures.items() if key in jobs}

    async def start(self, observation: Observation, starts: Sequence[Start], policy: str) -> None:
        """Pin the jobs to the plan's nodes, and release those that were pinned: piece by piece, until a piece is not answered."""
        by_key = {observation.rows[start.row].key: start for start in starts}
        await self._verbs.starts.run(
            by_key, lambda keys: self._start_apart(observation, [by_key[key] for key in keys], policy)
        )

    async def _start_apart(self, observation: Observation, starts: Sequence[Start], policy: str) -> Failures:
        """Start the jobs of one piece; after an unexpected error, each alone. Returns those that could not be started."""
        failed: dict[JobKey, Failure] = {}

        async def start(some: Sequence[Start]) -> None:
            failed.update(await self._start(observation, some, policy))

        left_out = await together_or_apart("starts", starts, start, lambda one: observation.rows[one.row].key.job_id)
        strange = {observation.rows[start.row].key: _STRANGE for start in left_out}
        if strange:
            await together_or_apart(
                "starts", list(strange), lambda keys: self._pins_failed(observation, dict.fromkeys(keys, _STRANGE))
            )
        return failed | strange

    async def _start(self, observation: Observation, starts: Sequence[Start], policy: str) -> Failures:
        """Start the jobs of one piece, those without a change since the decision. Returns those that could not be started."""
        changed = await self._overtaken(observation, [observation.rows[start.row] for start in starts])
        unchanged = [start for start in starts if observation.rows[start.row].key not in changed]
        return {**changed, **(await self._start_unchanged(observation, unchanged, policy) if unchanged else {})}

    async def _start_unchanged(self, observation: Observation, starts: Sequence[Start], policy: str) -> Failures:
        """Start these jobs. Returns those that could not be started."""
        pins, failed = self._prepare(observation, starts, policy)
        described = {key: _describe(pin) for key, pin in pins.items()}
        if pins:
            failed |= await self._verbs.pin(list(pins.values()), described)
        placed = [pin for key, pin in pins.items() if key not in failed]
        failed |= await self._on_unregistered_nodes(observation, placed)
        if failed:
            await self._pins_failed(observation, failed)
        pinned = [key for key in pins if key not in failed]
        if not pinned:
            return failed
        unreleased, theirs = await self._hand_over.release(observation.jobs, dict.fromkeys(pinned, ""))
        pinned = [key for key in pinned if key not in theirs]
        released = [key for key in pinned if key not in unreleased]
        for key in released:
            self._events.add("placed", key.job_id, f"{described[key]} by {policy}")
        await self._verbs.unmark(released, HOLD_MARK, PIN_MARK, unless_held=True)
        for key in pinned:
            self._pin_failures.pop(key, None)
        # After a release without an answer, the next snapshot shows whether the job starts; until then its pin is kept.
        await self._own_requests.undo_pins(_reasons("could not be released", _answered(unreleased)))
        return {**failed, **unreleased}

    def _prepare(
        self, observation: Observation, starts: Sequence[Start], policy: str
    ) -> tuple[dict[JobKey, Pin], dict[JobKey, Failure]]:
        """Return the pins of these starts, which ledger and journal have now, and the jobs that led to an unexpected error."""
        pins: dict[JobKey, Pin] = {}
        for start in starts:
            key = observation.rows[start.row].key
            with apart("starts", key.job_id):
                self._set_size(observation, start)
                pin = self._as_slurm_takes_it(_pin(observation, start, self._ledger))
                self._remember(observation, start, pin, policy)
                pins[key] = pin
        for key in self._journal.save_jobs(self._ledger, pins):
            del pins[key]  # without its own request in the journal, no job is pinned
            self._ledger.pins.pop(key, None)
            self._ledger.originals.pop(key, None)
        not_made = [key for start in starts if (key := observation.rows[start.row].key) not in pins]
        return pins, dict.fromkeys(not_made, _STRANGE)

    def _set_size(self, observation: Observation, start: Start) -> None:
        """Set the size that the policy has chosen for an elastic job. It is saved with the pin.

        If such a job is not started, it waits in this size, and the policy may choose another one.
        """
        jobs, (least, most) = observation.state.jobs, observation.state.jobs.sizes
        if least[start.row] < most[start.row] and start.placement.num_gpus != jobs.num_gpus[start.row]:
            self._ledger.set_size(observation.rows[start.row].key, start.placement.num_gpus)

    async def _overtaken(self, observation: Observation, jobs: Sequence[SlurmJob]) -> Failures:
        """Return the jobs that have changed since an old snapshot: the next cycle decides on them again."""
        if abs(self._clock.now() - observation.snapshot.time_s) < _FRESH_S:
            return {}
        try:
            now = await self._verbs.read([job.key for job in jobs])
        except SlurmError as error:
            return dict.fromkeys([job.key for job in jobs], Failure(str(error), FailureReason.UNAVAILABLE))
        found = overtaken(jobs, now, self._changed)
        self._changed |= {key: now[key] for key in found if key in now}
        return found

    async def _on_unregistered_nodes(self, observation: Observation, pins: Sequence[Pin]) -> Failures:
        """Return the pinned jobs that must not be released yet.

        slurmctld may have restarted since the snapshot. Until a node registers with it, it knows only the number of the node's
        GPUs, and a job that starts there gets none of them. A restart takes longer than `_FRESH_S`.
        """
        if not pins or abs(self._clock.now() - observation.snapshot.time_s) < _FRESH_S:
            return {}
        try:
            unregistered = await self._verbs.unregistered(sorted({node for pin in pins for node in pin.nodes}))
        except SlurmError as error:
            return dict.fromkeys([pin.key for pin in pins], Failure(str(error), FailureReason.UNAVAILABLE))
        failure = Failure(
            "slurmctld has just started, and its nodes have not registered yet", FailureReason.UNAVAILABLE
        )
        return {pin.key: failure for pin in pins if not unregistered.isdisjoint(pin.nodes)}

    async def _pins_failed(self, observation: Observation, failed: Failures) -> None:
        """Let the jobs be pinned again later. A job whose pins Slurm has refused several times is given to Slurm to place.

        A job whose pin was not answered stays held, and the ledger keeps its own request: the next pin makes the missing changes.
        """
        unanswered = [key for key, failure in failed.items() if failure.unavailable]
        for key in unanswered:
            self._ledger.pins.pop(key, None)
        if unanswered:
            self._journal.save_jobs(self._ledger, unanswered)
        hopeless = {}
        for key, failure in _answered(failed).items():
            if not failure.gone and not failure.not_ours:
                self._pin_failures[key] = self._pin_failures.get(key, 0) + 1
                if self._pin_failures[key] >= _PIN_TRIES:
                    del self._pin_failures[key]
                    hopeless[key] = f"could not be pinned: {failure.message}"
        rest = {key: failure for key, failure in _answered(failed).items() if key not in hopeless}
        await self._own_requests.undo_pins(_reasons("could not be pinned", rest))
        if hopeless:
            await self.give_to_slurm(observation.jobs, hopeless)

    async def adopt(self, jobs: Sequence[SlurmJob]) -> Failures:
        """Hold pending jobs that Slurm may start at any moment, so that the policy places them."""
        # A job that its user has released no longer has a user's hold. The mark of that hold is removed first. If it stays, the
        # job is not held either: a job with both marks would count as one that its user wants held.
        failed = dict(
            await self._verbs.unmark([job.key for job in jobs if USER_HOLD_MARK in job.marks], USER_HOLD_MARK)
        )
        keys = [job.key for job in jobs if job.key not in failed]
        for key in keys:
            self._ledger.pins.pop(key, None)
        if keys:
            failed.update(await self._verbs.hold(dict.fromkeys(keys, "adopt")))
        for job in jobs:
            failure = failed.get(job.key)
            if failure is None:
                self._events.add("held", job.key.job_id, "taken into the queue")
            elif failure.reason is FailureReason.REFUSED and not job.has_pin_mark:
                # Slurm itself places a job that it does not let us hold. One whose placement is not known any more, as after a
                # damage of the journal, still asks for the nodes of that placement, and would wait for them for ever: the next
                # cycle tries again.
                self._ledger.yielded[job.key] = job.restarts
        self._journal.save_jobs(self._ledger, [job.key for job in jobs])
        return failed

    async def refuse(self, verdicts: Mapping[JobKey, Verdict]) -> None:
        """Hold the released jobs that Slurm does not start, restore their own requests, and let them wait for a while."""
        reasons = {key: verdict.why for key, verdict in verdicts.items()}
        failed = await self._verbs.hold(reasons)
        refused = {key: (why, True) for key, why in reasons.items() if key not in failed}
        await self._own_requests.note_changes(refused)
        await self._own_requests.undo_pins(refused, verdicts)

    async def take_back(self, why: Mapping[JobKey, str]) -> None:
        """Hold placed jobs again, and restore their own requests: they are to be placed anew, without a pause."""
        failed = await self._verbs.hold(why)
        held = {key: (text, False) for key, text in why.items() if key not in failed}
        await self._own_requests.note_changes(held)
        await self._own_requests.undo_pins(held)
        for key, (text, _) in held.items():
            self._events.add("held", key.job_id, f"is placed again: {text}")

    def refuse_alike(self, alike: Mapping[JobKey, JobKey]) -> None:
        """Let jobs wait as long as the job with the same limit. This is not journaled, because it can be computed again."""
        for key, like in alike.items():
            refusal = self._ledger.refusals.get(like)
            if refusal is not None:
                own = self._ledger.refusals.get(key, _NOT_REFUSED)
                self._ledger.refusals[key] = replace(
                    refusal, like=like.job_id, unfit=own.unfit, places=own.places, behind=own.behind, tried=own.tried
                )

    def may_give(self, key: JobKey) -> bool:
        """Return whether the job may be given to Slurm now: not in the pause after Slurm has refused a change for that."""
        return self._not_given_until.get(key, 0.0) <= self._clock.monotonic()

    async def give_to_slurm(self, jobs: Mapping[JobKey, SlurmJob], why: Mapping[JobKey, str]) -> None:
        """Release jobs as they are, for Slurm to place; they are not adopted again for this run.

        A job for which Slurm refuses that waits for longer after every refusal, as one that could not be pinned.
        """
        keys = list(why)
        for key in keys:
            self._ledger.yielded[key] = jobs[key].restarts
            dropped = self._ledger.relocations.pop(key, None)  # Slurm does not know it, and gets the user's own request
            if dropped is not None:
                text = (
                    f"was to be placed{constraint_text(dropped)}; that is dropped, because Slurm places it: {why[key]}"
                )
                self._events.add("preempt", key.job_id, text)
        self._journal.save_jobs(self._ledger, keys)
        failed = await self._release_as_they_are(jobs, why)
        for key in keys:
            self._ledger.pins.pop(key, None)
            if key in failed:
                self._ledger.yielded.pop(key, None)
                self._not_given(key, failed[key])
            else:
                self._ledger.refusals.pop(key, None)
                self._not_given_until.pop(key, None)
                with apart("jobs given to Slurm", key.job_id):
                    if is_hidden_later(jobs[key].request) and is_complete(jobs[key]):
                        self._ledger.originals.setdefault(key, jobs[key].request)
                self._events.add("released", key.job_id, f"given to Slurm to place: {why[key]}")
        await self._verbs.unmark([key for key in keys if key not in failed], unless_held=True)
        await self._verbs.unmark([key for key in keys if key not in failed and jobs[key].has_pin_mark], PIN_MARK)
        self._journal.save_jobs(self._ledger, keys)

    def _not_given(self, key: JobKey, failure: Failure) -> None:
        """Let a job wait for which Slurm has refused a change. Its refusals are counted in the ledger, with others of the job."""
        if failure.reason is not FailureReason.REFUSED:
            return
        now_s, at_s = self._clock.now(), self._clock.monotonic()
        verdict = Verdict(f"could not be given to Slurm: {failure.message}")
        refusal = refused_again(self._ledger.refusals.get(key), verdict, now_s, ())
        self._ledger.refusals[key] = refusal
        pauses = {one: until_s for one, until_s in self._not_given_until.items() if until_s > at_s}
        self._not_given_until = {**pauses, key: at_s + refusal.retry_at_s - now_s}

    async def _release_as_they_are(self, jobs: Mapping[JobKey, SlurmJob], why: Mapping[JobKey, str]) -> Failures:
        """Release jobs with their own requests."""
        # Slurm's own hold of an impossible job ends with the first change of the job, when its request is only half restored.
        impossible = {
            key: text for key, text in why.items() if jobs[key].is_impossible and key in self._ledger.originals
        }
        failed = dict(await self._verbs.hold(impossible))
        failed |= await self._own_requests.restore([key for key in why if key not in failed])
        free = {key: text for key, text in why.items() if key not in failed}
        if free:
            unreleased, theirs = await self._hand_over.release(jobs, free)
            failed.update(unreleased)
            failed.update(dict.fromkeys(theirs, Failure("its user holds it", FailureReason.NOT_OURS)))
        return failed

    def binds(self, observation: Observation, row: int, placement: Placement) -> bool:
        """Return whether Slurm can be told which GPUs the job of that row gets by that placement."""
        with apart("GPUs of jobs", observation.rows[row].key.job_id):
            pin = _pin(observation, Start(row, placement, ""), self._ledger)
            return bool(pin.gpu_masks) and self._verbs.can_bind_gpus(pin)
        return False

    def _as_slurm_takes_it(self, pin: Pin) -> Pin:
        """Return the pin without GPUs where Slurm cannot be told which: the choice is then only advice, and `why` says so."""
        return pin if not pin.gpu_masks or self._verbs.can_bind_gpus(pin) else replace(pin, gpu_masks=())

    def _remember(self, observation: Observation, start: Start, pin: Pin, policy: str) -> None:
        job = observation.rows[start.row]
        self._ledger.originals.setdefault(pin.key, job.request)
        self._ledger.pins[pin.key] = PinRecord(
            nodes=pin.nodes,
            gpus=start.placement.gpus,
            restarts=job.restarts,
            pinned_at_s=self._clock.now(),
            policy=policy,
            reason="; ".join(filter(None, (start.reason, chosen_text(pin, start.placement.gpu_masks)))),
            gpu_masks=pin.gpu_masks,
            frees_s=start.frees_s,
            birthmark=job.birthmark,
        )


def _pin(observation: Observation, start: Start, ledger: Ledger) -> Pin:
    job = observation.rows[start.row]
    placement = start.placement
    names = observation.state.nodes.names
    even = len(set(placement.gpus)) == 1
    constraint = ledger.relocations.get(job.key)
    return Pin(
        key=job.key,
        nodes=tuple(names[node] for node in placement.nodes),
        gpus_per_node=placement.gpus[0] if even else None,
        original=request_now(job, ledger),
        resized=constraint is not None and constraint.gpus is not None,
        gpu_masks=placement.gpu_masks if even else (),
    )


def _reasons(what: str, failures: Failures) -> dict[JobKey, tuple[str, bool]]:
    """Return the reason of each failure, and True if Slurm refused the job."""
    return {
        key: (f"{what}: {failure.message}", not (failure.unavailable or failure.not_ours))
        for key, failure in failures.items()
    }


def _answered(failures: Failures) -> dict[JobKey, Failure]:
    """Return the failures that Slurm itself has reported."""
    return {key: failure for key, failure in failures.items() if not failure.unavailable}


def _describe(pin: Pin) -> str:
    per_node = "" if pin.gpus_per_node is None else f":{pin.gpus_per_node}"
    indices = [f"(IDX:{gpus_text(mask)})" if mask else "" for mask in pin.gpu_masks] or [""] * len(pin.nodes)
    return ",".join(f"{node}{per_node}{which}" for node, which in zip(pin.nodes, indices, strict=True))
