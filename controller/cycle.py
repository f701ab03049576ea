"""One cycle of the controller: observe, decide, plan, apply.

`Cycle.run` is the whole path in the order in which it happens. It reads Slurm once; jobs that it changes on the way are
read again one by one, so that slurmctld never sees a second bulk query for the same cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from controller.apply import Applier, describe_placement
from controller.clock import Clock
from controller.config import ControllerSettings
from controller.contention import NOTHING, Known
from controller.decide import Decided, Decider
from controller.elsewhere import stranded
from controller.events import EventLog
from controller.follow import Changes, changes, held_gpus, run_record, scoped, served_after
from controller.journal import DecisionEntry, Journal, RunRecord
from controller.known_models import KnownModels
from controller.ledger import Ledger, Refusal, Served
from controller.limits import may_let_go, put_off
from controller.observe import Observation, Observer
from controller.policy_stops import PolicyStops
from controller.preempting import Preempting
from controller.racks import Racks
from controller.scope import LAST_RETRY_S, SETTLING, Role
from controller.slurm.client import HOLD_MARK, JobKey, Phase, SlurmClient, SlurmJob, SlurmSnapshot
from policies.wire import state_digest

log = structlog.get_logger(__name__)

_STILL_DECIDING = frozenset(
    {"", "None", "Priority", "Resources", "BeginTime", "JobHeldAdmin", "JobHeldUser", "Cleaning"}
)
"""Reasons that Slurm shows of a released job that it may yet start; every other one means that it will not for now."""
_RETRIES_AT_ONCE = 8
_PASSING = frozenset({Phase.CONFIGURING, Phase.COMPLETING})


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle found and did."""

    observation: Observation
    changes: Changes
    runs: tuple[RunRecord, ...]
    """Jobs that ended since the cycle before."""
    decided: Decided | None
    in_transit: bool
    """Something is about to change (a job starting, ending): look again soon."""


class Cycle:
    """The path from Slurm to Slurm. Invariant: every waiting job is placed, left waiting by a policy, or given to Slurm."""

    def __init__(
        self,
        settings: ControllerSettings,
        client: SlurmClient,
        decider: Decider,
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
        preempting: Preempting,
    ) -> None:
        self.settings = settings
        self._client = client
        self._decider = decider
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._observer = Observer()
        self._preempting = preempting
        self._stops = PolicyStops(preempting, events)
        self._applier = Applier(client, journal, ledger, events, clock)
        self._jobs: dict[JobKey, SlurmJob] = {}
        """Those in scope at the last look, and the partitions that made them so."""
        self._scope: frozenset[str] = frozenset()
        self._first = True
        self._last_policy = ""
        self.measured: Known = NOTHING
        """What is known of how running jobs do: the next snapshot says it."""

    def learn(self, models: KnownModels | None) -> None:
        """What is known of models: the next snapshot says it."""
        self._observer.teller.known = models

    def hang(self, racks: Racks) -> None:
        """Nodes hang so: the next snapshot says it."""
        self._observer.racks = racks

    @property
    def _partitions(self) -> frozenset[str]:
        return frozenset(self.settings.partitions)

    @property
    def refused_in_a_row(self) -> int:
        """Steps since Slurm last did anything that was asked of it."""
        return self._applier.refused_in_a_row

    @property
    def slurm_errors(self) -> int:
        """Steps that Slurm refused, since the start."""
        return self._applier.errors

    async def run(self, snapshot: SlurmSnapshot, user_holds: Iterable[str] = ()) -> CycleResult:
        """Everything that this snapshot calls for."""
        found, runs = self._follow(snapshot)
        await self._applier.leave(self._preempting.called_off.marked)
        await self.errands()
        may_stop = self._stops.preemptible(self._jobs.values(), self.settings, self._clock.now())
        observation = self._observer.observe(snapshot, self._ledger, self._partitions, self.measured, may_stop)
        observation = await self._settle(observation, set(user_holds))
        decided = None
        if len(observation.state.pending):
            decided = await self._decide(observation)
        in_transit = self._preempting.moving or self._stops.look_again or _in_transit(observation, decided)
        return CycleResult(observation, found, runs, decided, in_transit)

    async def errands(self) -> bool:
        """Stop the jobs that have saved, and tell those that requeue themselves. Between two cycles too: nothing is read before.

        Whether anything has changed in Slurm.
        """
        stops, signals = self._preempting.orders()
        done = False
        try:
            for rows, order, told in (
                (stops, self._applier.stop, self._preempting.stopped),
                (signals, lambda why: self._applier.signal(why, "USR1"), self._preempting.signalled),
            ):
                if rows:
                    why = {JobKey(row.job_id, row.submit_time_s): f"preemption {row.number}: {row.why}" for row in rows}
                    failed = await order(why)
                    for key, row in zip(why, rows, strict=True):
                        told(row, failed.get(key))
                    done = done or len(failed) < len(rows)
        finally:
            self._preempting.orders_over()
        return done

    def _follow(self, snapshot: SlurmSnapshot) -> tuple[Changes, tuple[RunRecord, ...]]:
        """Bring the ledger up to date with what happened in Slurm since the snapshot before."""
        partitions = self._partitions
        jobs = scoped(snapshot.jobs, partitions, self._jobs if partitions == self._scope else None)
        self._scope = partitions
        if self._first:
            self._settle_absence(snapshot)
        before, self._jobs = self._jobs, jobs
        found = changes(before, jobs)
        touched: set[JobKey] = set()
        for former, job in found.requeued:
            self._ledger.succeed(former.key, job.key, served_after(former, job, self._ledger, snapshot.time_s))
            if job.restarts > former.restarts:
                self._events.add("held", job.key.job_id, f"requeued by Slurm ({former.state}); it is placed anew")
            touched |= {former.key, job.key}
        for job in found.started:
            if self._ledger.refusals.pop(job.key, None) is not None:
                touched.add(job.key)
            nodes = describe_placement((share.node for share in job.allocated), (share.gpus for share in job.allocated))
            self._events.add("started", job.key.job_id, nodes)
        runs = [run_record(job, before.get(job.key), self._ledger, snapshot.time_s) for job in found.ended]
        if found.gone or self._first:
            # Facts of a job that only left the scope are still needed to give it back.
            forgotten = self._ledger.keys() - {job.key for job in snapshot.jobs}
            self._ledger.forget(forgotten)
            touched |= forgotten
        self._preempting.see(snapshot)
        self._record_ended(found, runs, snapshot.time_s, touched)
        touched |= {key for key in list(self._ledger.elsewhere) if self._has_arrived(key)}
        if touched:
            self._journal.save_jobs(self._ledger, touched)
        if self._first:
            self._close_books(jobs, snapshot.time_s)
            self._ledger.estimates = self._journal.estimates(*self._history)
        self._first = False
        return found, tuple(runs)

    def _settle_absence(self, snapshot: SlurmSnapshot) -> None:
        """Jobs that were requeued while nobody looked have another identity now: their facts go over."""
        known = self._ledger.keys()
        lost = {key.job_id: key for key in known - {job.key for job in snapshot.jobs}}
        for job in snapshot.jobs:
            old = lost.get(job.key.job_id)
            if old is None or job.key in known:
                continue
            pin = self._ledger.pins.get(old)
            if job.restarts > (pin.restarts if pin is not None else 0):
                served = self._ledger.served.get(old, Served(0.0, 0.0, old.submit_time_s))
                self._ledger.succeed(old, job.key, served)
                self._journal.save_jobs(self._ledger, [old, job.key])

    @property
    def _history(self) -> tuple[int, int]:
        return self.settings.history_runs, self.settings.history_min_runs

    def _record_ended(self, found: Changes, runs: list[RunRecord], now_s: float, touched: set[JobKey]) -> None:
        if not runs:
            return
        self._journal.record_runs(runs)
        names = {(run.user, run.name) for run in runs}
        self._ledger.estimates.update(self._journal.estimates(*self._history, names))
        for job in found.ended:
            self._events.add("ended", job.key.job_id, job.state)
        # Somebody's end is what jobs refused for a limit are waiting for.
        ended = {
            (job.user, job.account, job.qos, job.licenses): job for job in found.ended
        }.values()  # one of each kind
        waiting = [key for key, refusal in self._ledger.refusals.items() if self._may_go(key, refusal, ended)]
        waiting.sort(key=lambda key: self._ledger.refusals[key].refused_at_s)
        for key in waiting[:_RETRIES_AT_ONCE]:
            refusal = self._ledger.refusals[key]
            self._ledger.refusals[key] = replace(refusal, retry_at_s=now_s)
            touched.add(key)

    def _has_arrived(self, key: JobKey) -> bool:
        """Of a job that is to go elsewhere: whether it runs, so that the ledger has changed."""
        job = self._jobs.get(key)
        return job is not None and job.phase is Phase.RUNNING and self._ledger.arrive(key, held_gpus(job))

    def _let_go(self, reasons: dict[JobKey, str]) -> None:
        for key, why in reasons.items():
            self._ledger.let_go(key)
            self._events.add("preempt", key.job_id, why)
        self._journal.save_jobs(self._ledger, reasons)

    def _may_go(self, key: JobKey, refusal: Refusal, ended: Iterable[SlurmJob]) -> bool:
        job = self._jobs.get(key)
        return job is not None and any(may_let_go(other, job, refusal.reason) for other in ended)

    def _close_books(self, jobs: dict[JobKey, SlurmJob], now_s: float) -> None:
        """After a restart: say of every step that was under way what became of its job. Slurm's picture does the rest."""
        for intent in self._journal.open_intents():
            job = jobs.get(intent.key)
            outcome = "job is gone" if job is None else f"found {job.phase.value}{', held' if job.held else ''}"
            self._journal.settle(intent.number, outcome, now_s)
            log.info("step_settled", verb=intent.verb, job=intent.key.job_id, outcome=outcome)

    async def _settle(self, observation: Observation, user_holds: set[str]) -> Observation:
        """Holds, refusals and jobs that only Slurm can place come first; the policy sees the queue after them."""
        changed: list[JobKey] = []
        if observation.to_adopt:
            failed = await self._applier.adopt([observation.jobs[key] for key in observation.to_adopt])
            changed += [key for key in observation.to_adopt if key not in failed]
        refused = overdue(observation, self._ledger, self.settings.start_grace_s)
        if refused:
            alike = put_off(observation, refused, self._ledger)
            await self._applier.refuse(refused)
            self._applier.put_off(alike)
            changed += refused
        if observation.to_yield:
            await self._applier.give_to_slurm(observation.jobs, observation.to_yield)
            changed += observation.to_yield
        if observation.twice_marked:
            await self._applier.finish_hold_for_user(observation.twice_marked)
            changed += observation.twice_marked
        holds = [job for job in observation.jobs.values() if _may_hold(job, user_holds)] if user_holds else []
        if holds:
            await self._applier.hold_for_user(holds)
            changed += [job.key for job in holds]
        let_go = stranded(observation, self._ledger)
        if let_go:
            self._let_go(let_go)
        if not changed and not let_go:
            return observation
        snapshot = await self._reread(observation.snapshot, changed)
        measured, may_stop = observation.measured, observation.preemptible
        return self._observer.observe(snapshot, self._ledger, self._partitions, measured, may_stop)

    async def _reread(self, snapshot: SlurmSnapshot, keys: list[JobKey]) -> SlurmSnapshot:
        fresh = await self._client.read(keys)
        wanted = set(keys)
        kept = [fresh.get(job.key, job) if job.key in wanted else job for job in snapshot.jobs]
        known = {job.key for job in snapshot.jobs}
        # Changing one task of an array makes it a job of its own, still under the same key.
        kept += [job for key, job in fresh.items() if key not in known]
        jobs = tuple(kept)
        self._jobs.update(scoped((job for job in jobs if job.key in wanted), self._partitions))
        return replace(snapshot, jobs=jobs)

    async def _decide(self, observation: Observation) -> Decided | None:
        decided = await self._decider.decide(observation.state)
        if decided is None:
            waiting = {
                observation.rows[row].key: "no policy could decide" for row in observation.state.pending.tolist()
            }
            await self._applier.give_to_slurm(observation.jobs, waiting)
            return None
        self._record(observation, decided)
        if decided.plan.starts:
            await self._applier.start(observation, decided.plan.starts, decided.policy)
        if decided.plan.stops:
            self._stops.begin(decided.plan, observation, decided.policy, self.settings, self._clock.now())
        return decided

    def _record(self, observation: Observation, decided: Decided) -> None:
        """Decisions that place somebody, or that somebody else makes than before, are kept; idle repetitions are not."""
        if not decided.plan.starts and decided.policy == self._last_policy:
            return
        if decided.policy != self._last_policy and decided.problem:
            self._events.add("fallback", "", f"{decided.policy} decides: {decided.problem}")
        elif decided.policy != self._last_policy:
            self._events.add("policy", "", f"{decided.policy} decides")
        self._last_policy = decided.policy
        names = observation.state.nodes.names
        placed = [
            (
                observation.rows[start.row].key,
                describe_placement((names[node] for node in start.placement.nodes), start.placement.gpus),
                start.reason,
            )
            for start in decided.plan.starts
        ]
        entry = DecisionEntry(
            time_s=self._clock.now(),
            sequence=observation.state.sequence,
            digest=state_digest(observation.state),
            policy=decided.policy,
            latency_s=decided.latency_s,
            problem=decided.problem,
        )
        self._journal.record_decision(entry, placed)


def overdue(observation: Observation, ledger: Ledger, grace_s: float) -> dict[JobKey, str]:
    """Released jobs that Slurm does not start, and its reason: refused outright, or waiting for longer than the grace."""
    late = {}
    now_s = observation.snapshot.time_s
    for job in observation.with_role(Role.STARTING):
        waited_s = now_s - ledger.pins[job.key].pinned_at_s
        refusal = ledger.refusals.get(job.key)
        # Behind a long queue Slurm may look seldom: each try waits longer. A wait below zero: the clock was set back.
        patience_s = min(grace_s * 2 ** (refusal.count if refusal else 0), LAST_RETRY_S)
        if waited_s > patience_s or waited_s < -grace_s:
            late[job.key] = f"Slurm did not start it within {patience_s:g} s ({job.reason or 'no reason given'})"
        elif job.reason.split(",")[0] not in _STILL_DECIDING and waited_s > 0.5:
            late[job.key] = f"Slurm refuses it: {job.reason}"
    return late


def _may_hold(job: SlurmJob, named: set[str]) -> bool:
    """Whether a job that we hold, waiting or not to be placed yet, is one of those; a task also answers to its array's name."""
    ours = job.phase is Phase.PENDING and job.held and job.marks == {HOLD_MARK}
    return ours and (job.key.job_id in named or (job.array_job_id is not None and str(job.array_job_id) in named))


def _in_transit(observation: Observation, decided: Decided | None) -> bool:
    if decided is not None and decided.plan.starts:
        return True
    starting, running = Role.STARTING, Role.RUNNING
    for key, found in observation.standings.items():
        role = found.role
        if role is starting or found is SETTLING or (role is running and observation.jobs[key].phase in _PASSING):
            return True
    return False
