"""Keeps the ledger: changes that a snapshot shows are written into ledger and journal, once.

It is the first step of a cycle, and does not call Slurm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

import structlog

from controller.base.apart import apart, each
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.base.text import describe_placement
from controller.cycle.changes import JobChanges, allocated_gpus, changes, run_record, scoped, served_after
from controller.cycle.limit_backoff import may_unblock
from controller.cycle.refusals import after_requeue, nodes_not_booted, requeued_at_once, retry_now
from controller.cycle.unreported import Unreported
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.state.hidden_bounds import is_outdated, remember_after_run, remember_before_run
from controller.state.identity import is_another, may_be_same
from controller.state.journal import Journal, RunRecord, require_storable
from controller.state.ledger import Ledger, Refusal, Served
from controller.state.rebuild import rebuild
from controller.state.step_outcome import is_answered, outcome_seen
from controller.state.user_changes import (
    counts_differently,
    may_show_a_change,
    note_change_after_pin,
    note_change_of_restored,
    note_change_since,
    request_changed_while_it_ended,
    request_of_a_changed_job,
)

log = structlog.get_logger(__name__)

_RETRIES_AT_ONCE = 8


class LedgerKeeper:
    """Brings the ledger up to date with each snapshot.

    Invariant: ledger and journal agree; where the journal cannot be written the ledger is as before, and the next snapshot shows
    the same changes again.
    """

    def __init__(self, journal: Journal, ledger: Ledger, events: EventLog) -> None:
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self.jobs: dict[JobKey, SlurmJob] = {}
        """Jobs in scope, as of the last snapshot. Bound: the jobs of one snapshot."""
        self._scope: frozenset[str] = frozenset()
        """Partitions by which these jobs are in scope."""
        self._history = (0, 0)
        """Maximum and minimum number of runs for an estimate."""
        self.unreported = Unreported()
        """Changes and ended runs that no good cycle has reported yet."""
        self._first = True
        self._read_s: float | None = None
        """Time of the last snapshot; None before the first."""
        self._shown_step: int | None = None
        """Number of the newest step that the last snapshot shows; None: not known."""
        self._missed = False
        """True if the last snapshot had no news of a job with facts in the ledger; it may have been requeued before the first."""

    def refresh(self, jobs: Iterable[SlurmJob]) -> None:
        """Use jobs that were read again within the cycle. A job whose stage has changed is left to the next snapshot."""
        self.jobs.update(
            (key, job) for key, job in scoped(jobs, self._scope).items() if _stage(job) == _stage(self.jobs.get(key))
        )

    def update(
        self, snapshot: SlurmSnapshot, settings: ControllerSettings, newest_step: int | None = None
    ) -> JobChanges:
        """Bring ledger and journal up to date with the changes since the snapshot before. Raises JournalError.

        `newest_step`: number of the journal's newest step when the reading of the snapshot began; None: no step is newer.
        """
        partitions, before = frozenset(settings.partitions), self.jobs
        self._history = (settings.history_runs, settings.history_min_runs)
        jobs = scoped(snapshot.jobs, partitions, before if partitions == self._scope else None)
        unread = self._unread(snapshot)
        jobs |= scoped([job for key, job in before.items() if key.job_id in unread], partitions)
        with self._ledger.all_or_nothing():
            if self._first or self._missed:
                self._settle_absence(snapshot)
            if self._first:
                self._rebuild(snapshot, jobs)
            touched = self._settle_changed_jobs(snapshot, before)
            found = changes(
                before, jobs, lambda job, former: may_be_same(job, former, self._ledger), since_s=self._read_s
            )
            touched |= self._apply_changes(found, before, snapshot)
            changed = self._note_changes_of_users(before, jobs)
            touched |= changed | self._forget_refusals(before, jobs, changed)
            requeued = {job.key: former for former, job in found.requeued}
            last_seen = [(job, before.get(job.key, requeued.get(job.key))) for job in found.ended]
            runs = each(
                "records of runs",
                last_seen,
                lambda seen: _record(*seen, self._ledger, snapshot.time_s),
                lambda seen: seen[0].key.job_id,
            )
            if found.gone or self._first or self._missed:
                # Facts about a job that has only left the scope are still needed, to give it back to Slurm.
                there = {job.key for job in snapshot.jobs}
                forgotten = {key for key in self._ledger.keys() - there if key.job_id not in unread}
                self._ledger.forget(forgotten)
                touched |= forgotten
            self._record_ended(found, runs, jobs, snapshot.time_s, touched)
            touched |= {key for key in list(self._ledger.relocations) if self._has_arrived(key, jobs.get(key))}
            if touched:
                self._journal.save_jobs(self._ledger, touched)
            self._settle_intents(snapshot, newest_step)
            if self._first:
                self._ledger.set_estimates(self._journal.estimates(*self._history))
                self._journal.found_all()  # last: if anything before it fails, the next cycle repeats all of it
        reported = found
        if self._first:
            found = replace(found, present=found.started)
        elif partitions != self._scope:
            found = replace(found, present=self._present(found))
            present = {job.key for job in found.present}
            reported = replace(found, started=tuple(job for job in found.started if job.key not in present))
        self.jobs, self._scope, self._first, self._missed = jobs, partitions, False, bool(unread)
        self._read_s, self._shown_step = snapshot.time_s, newest_step
        self.unreported.add(found, runs)
        self._report(reported)
        return found

    def _present(self, found: JobChanges) -> tuple[SlurmJob, ...]:
        """Return the jobs that have come into scope, with a partition of new settings, and ran at the last snapshot already."""
        new, read_s = {job.key for job in found.new}, self._read_s
        return tuple(
            job
            for job in found.started
            if job.key in new and read_s is not None and job.start_time_s is not None and job.start_time_s < read_s
        )

    def _unread(self, snapshot: SlurmSnapshot) -> frozenset[str]:
        """Return the ids of known jobs that are not in the snapshot and may exist all the same."""
        if not snapshot.unread:
            return frozenset()
        known = {key.job_id for key in self._ledger.keys() | self.jobs.keys()}
        unread = snapshot.unread_of(known - {job.key.job_id for job in snapshot.jobs})
        # A task that has started has a record of its own, so it is none of the others' unread records.
        own = {key.job_id: job.raw_id for key, job in self.jobs.items() if job.phase is not Phase.PENDING}
        return frozenset(job_id for job_id in unread if own.get(job_id) is None or own[job_id] in snapshot.unread)

    def _apply_changes(
        self, found: JobChanges, before: Mapping[JobKey, SlurmJob], snapshot: SlurmSnapshot
    ) -> set[JobKey]:
        """Update the ledger for jobs that were requeued or have started. Returns the keys whose facts have changed."""
        touched: set[JobKey] = set()
        for former, job in found.requeued:
            with apart("requeued jobs", job.key.job_id) as step:
                self._follow_requeue(former, job, snapshot)
            if step.failed and former.key != job.key:
                self._keep_facts(former.key, job.key)
            touched |= {former.key, job.key}
        for job in found.new:
            with apart("new jobs", job.key.job_id):
                if remember_after_run(job, None, self._ledger, snapshot.nodes):
                    touched.add(job.key)
        for job in found.started:
            with apart("started jobs", job.key.job_id):
                if remember_before_run(job, before.get(job.key), self._ledger):
                    touched.add(job.key)
            refusal = self._ledger.refusals.get(job.key)
            if refusal is not None and not (job.phase is Phase.CONFIGURING and refusal.is_for_boot):
                del self._ledger.refusals[job.key]
                touched.add(job.key)
        return touched

    def _follow_requeue(self, former: SlurmJob, job: SlurmJob, snapshot: SlurmSnapshot) -> None:
        """Bring the facts about a requeued job up to date with its new run."""
        if is_outdated(former, job, self._ledger):
            del self._ledger.originals[former.key]
        not_booted = nodes_not_booted(former, snapshot.nodes)
        refused = self._ledger.refusals.get(former.key)
        served = served_after(former, job, self._ledger, snapshot.time_s, has_begun=not not_booted)
        pin = self._ledger.pins.get(former.key)
        self._ledger.succeed(former.key, job.key, served)
        if pin is not None and job.key == former.key and job.phase.occupies_nodes:
            # While its last run ends, the nodes of the pin tell the job from another one with its id, also after a restart.
            self._ledger.pins[job.key] = pin
        pause = requeued_at_once(served.short_runs, snapshot.time_s)
        if (refusal := after_requeue(pause, refused, not_booted, snapshot.time_s)) is not None:
            self._ledger.refusals[job.key] = refusal
        remember_after_run(job, former, self._ledger, snapshot.nodes)

    def _keep_facts(self, former: JobKey, key: JobKey) -> None:
        """Give a requeued job its new identity after an error in `_follow_requeue`: without the usage of its last run, at least its
        own request is kept."""
        known = self._ledger.keys()
        if former in known:
            served = self._ledger.served.get(former, Served(0.0, 0.0, former.submit_time_s))
            self._ledger.succeed(former, key, served)

    def _report(self, found: JobChanges) -> None:
        for former, job in found.requeued:
            if job.restarts > former.restarts:
                then = "; it is placed again" if job.phase is Phase.PENDING or job.phase is Phase.COMPLETING else ""
                self._events.add("held", job.key.job_id, f"requeued by Slurm ({former.state}){then}")
        for job in (*found.started, *found.unseen):
            with apart("events of jobs", job.key.job_id):
                nodes = describe_placement(
                    (share.node for share in job.allocated), (share.gpus for share in job.allocated)
                )
                self._events.add("started", job.key.job_id, nodes)
        for job in found.ended:
            self._events.add("ended", job.key.job_id, job.state)

    def _settle_absence(self, snapshot: SlurmSnapshot) -> None:
        """Move the facts of jobs that were requeued while the controller was away to their new identities."""
        known = self._ledger.keys()
        # Requeues of jobs that this controller has seen are among the changes.
        lost = {key.job_id: key for key in known - {job.key for job in snapshot.jobs} - self.jobs.keys()}
        for job in snapshot.jobs:
            old = lost.get(job.key.job_id)
            if old is None or job.key in known:
                continue
            pin = self._ledger.pins.get(old)
            with apart("requeued jobs", job.key.job_id):
                if job.restarts > (pin.restarts if pin is not None else 0) and may_be_same(job, old, self._ledger):
                    served = self._ledger.served.get(old, Served(0.0, 0.0, old.submit_time_s))
                    self._ledger.succeed(old, job.key, served)
                    self._journal.save_jobs(self._ledger, [old, job.key])

    def _settle_changed_jobs(self, snapshot: SlurmSnapshot, before: Mapping[JobKey, SlurmJob]) -> set[JobKey]:
        """Keep the requests of jobs that were requeued and then changed by their users before they were read. Returns their keys.

        Such a job shows neither the request that Headway wrote nor the one of its user. Its other facts are not kept.
        """
        lost = {key.job_id: key for key in self._ledger.originals.keys() - {job.key for job in snapshot.jobs}}
        found: set[JobKey] = set()
        for job in snapshot.jobs if lost else ():
            old = lost.get(job.key.job_id)
            if old is None or job.key in self._ledger.originals:
                continue
            with apart("changed jobs", job.key.job_id):
                if (request := self._request_since(job, old, before.get(old))) is not None:
                    self._ledger.originals[job.key] = request
                    found.add(job.key)
        return found

    def _request_since(self, job: SlurmJob, old: JobKey, last: SlurmJob | None) -> ResourceRequest | None:
        """Return the own request of a job that was requeued, as its user has changed it since; None: it is not that job, or the
        request is not known. `last`: the job as last seen."""
        pin, original = self._ledger.pins.get(old), self._ledger.originals[old]
        if may_be_same(job, old, self._ledger) or is_another(job, old, self._ledger):
            return None
        if last is not None and last.user != job.user:
            return None
        if pin is not None:
            return request_of_a_changed_job(job, pin, original)
        return None if last is None else request_changed_while_it_ended(job, last, original)

    def _note_changes_of_users(self, before: Mapping[JobKey, SlurmJob], jobs: Mapping[JobKey, SlurmJob]) -> set[JobKey]:
        """Bring the own requests of waiting jobs up to date with changes by their users. Returns the keys of these jobs."""
        found: set[JobKey] = set()
        for key in list(self._ledger.originals):
            last, job = before.get(key), jobs.get(key)
            if job is None or job is last or self._ledger.yielded.get(key) == job.restarts:
                continue
            with apart("changed jobs", key.job_id):
                if self._note_change(last, job):
                    found.add(key)
                    self._events.add("held", key.job_id, "its request was changed in Slurm, and counts from now on")
        return found

    def _forget_refusals(
        self, before: Mapping[JobKey, SlurmJob], jobs: Mapping[JobKey, SlurmJob], changed: Set[JobKey]
    ) -> set[JobKey]:
        """Forget refusals of jobs whose users have changed them since, with all their counts. Returns the keys of these jobs.

        `changed`: those of which the ledger has a new request.
        """
        found: set[JobKey] = set()
        for key, refusal in list(self._ledger.refusals.items()):
            last, job = before.get(key), jobs.get(key)
            if not refusal.ends_with_change or last is None or job is None or job is last:
                continue
            with apart("changed jobs", key.job_id) as step:
                changes = counts_differently(last, job, self._ledger) and self._is_unchanged_by_us(key)
            if key in changed or (not step.failed and changes):
                del self._ledger.refusals[key]
                found.add(key)
                limit = f"was refused for a limit ({refusal.slurm_reason})" if refusal.is_for_limit else ""
                cause = limit or f"was not started ({refusal.reason})"
                self._events.add("held", key.job_id, f"{cause}; it was changed in Slurm, and is tried again at once")
        return found

    def _note_change(self, last: SlurmJob | None, job: SlurmJob) -> bool:
        pin = self._ledger.pins.get(job.key)
        if pin is not None and pin.restarts == job.restarts:
            return note_change_after_pin(job, self._ledger)
        if note_change_of_restored(job, self._ledger):
            return True
        if last is None or not may_show_a_change(last, job) or not self._is_unchanged_by_us(job.key):
            return False
        return note_change_since(last, job, self._ledger)

    def _is_unchanged_by_us(self, key: JobKey) -> bool:
        """Return whether the last snapshot certainly shows the effect of all that Headway has ordered about a job's request.

        Slurm may carry out an order that it has not answered at any later time.
        """
        if self._shown_step is None or self._missed:
            return False
        orders = [step for step in self._journal.intents_of(key) if step.verb in {"pin", "unpin"}]
        return not orders or (orders[0].number <= self._shown_step and is_answered(orders[0].outcome))

    def _rebuild(self, snapshot: SlurmSnapshot, jobs: dict[JobKey, SlurmJob]) -> None:
        """Rebuild facts of a lost journal from Slurm's data."""
        seen_here = any(job.marks or job.has_pin_mark for job in snapshot.jobs)
        found = rebuild(jobs.values(), self._ledger, lambda key: self._journal.may_lack(key, seen_here=seen_here))
        if found:
            self._journal.save_jobs(self._ledger, found)
        for key in found:
            problem = "its own request was lost with the journal; it stays bound to its present nodes for this run only"
            self._events.add("error", key.job_id, problem)

    def _record_ended(
        self,
        found: JobChanges,
        runs: list[RunRecord],
        jobs: Mapping[JobKey, SlurmJob],
        now_s: float,
        touched: set[JobKey],
    ) -> None:
        if not runs:
            return
        self._journal.record_runs(runs)
        names = {(run.user, run.name) for run in runs}
        self._ledger.update_estimates(self._journal.estimates(*self._history, names))
        # Jobs that were refused for a limit wait for another job to end.
        ended = {
            (job.user, job.account, job.qos, job.licenses): job for job in found.ended
        }.values()  # one of each kind
        waiting = [key for key, refusal in self._ledger.refusals.items() if _may_retry(jobs.get(key), refusal, ended)]
        waiting.sort(key=lambda key: self._ledger.refusals[key].refused_at_s)
        for key in waiting[:_RETRIES_AT_ONCE]:
            self._ledger.refusals[key] = retry_now(self._ledger.refusals[key], now_s)
            touched.add(key)

    def _has_arrived(self, key: JobKey, job: SlurmJob | None) -> bool:
        """Note that a relocated job runs again. Returns whether the ledger has changed."""
        with apart("relocated jobs", key.job_id):
            return job is not None and job.phase is Phase.RUNNING and self._ledger.note_start(key, allocated_gpus(job))
        return False

    def _settle_intents(self, snapshot: SlurmSnapshot, newest_step: int | None) -> None:
        """After a restart, or when slurmctld did not answer, record the present state of its job as the outcome of each open step.

        A step that is newer than the reading waits for the next snapshot, and so does one for a job that this snapshot has no news
        of.
        """
        steps = self._journal.open_intents()
        if not steps:
            return
        jobs = {job.key: job for job in snapshot.jobs}
        outcomes: dict[int, str] = {}
        unread = snapshot.unread_of(intent.key.job_id for intent in steps)
        for intent in steps:
            if intent.key.job_id in unread:
                continue
            if newest_step is not None and intent.number > newest_step:
                continue  # compared by number, not by time: clocks may be set back
            job = jobs.get(intent.key)
            with apart("outcomes of steps", intent.key.job_id):
                outcomes[intent.number] = outcome = outcome_seen(intent.verb, job).value
                log.info("step_settled", verb=intent.verb, job=intent.key.job_id, outcome=outcome)
        if outcomes:
            self._journal.settle(outcomes, snapshot.time_s)


def _stage(job: SlurmJob | None) -> tuple[int, bool, bool]:
    """Return the values that `changes` compares, because a change used here would never be reported. An unknown job counts as
    waiting."""
    return (0, False, False) if job is None else (job.restarts, job.phase.occupies_nodes, job.phase is Phase.ENDED)


def _record(job: SlurmJob, former: SlurmJob | None, ledger: Ledger, now_s: float) -> RunRecord:
    """Return the record of an ended job, as the journal can store it."""
    run = run_record(job, former, ledger, now_s)
    require_storable(run)
    return run


def _may_retry(job: SlurmJob | None, refusal: Refusal, ended: Iterable[SlurmJob]) -> bool:
    if job is None:
        return False
    with apart("refused jobs", job.key.job_id):
        return any(may_unblock(other, job, refusal.slurm_reason) for other in ended)
    return False
