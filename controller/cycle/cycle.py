"""One cycle of the controller: observe, decide, plan, apply.

`Cycle.run` is the whole path in the order in which it happens. It reads Slurm once; jobs that it changes on the way are
read again one by one, so that slurmctld never sees a second bulk query for the same cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.changes import JobChanges
from controller.cycle.decision.decider import Decided, Decider
from controller.cycle.decision.decision_log import DecisionLog
from controller.cycle.decision.policy_stops import PolicyStops
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.cycle.limit_backoff import put_off
from controller.cycle.refusals import hopeless, overdue
from controller.cycle.steps.applier import Applier
from controller.cycle.stranded import stranded
from controller.observe.model_profiles import KnownModels
from controller.observe.observer import Observation, Observer
from controller.observe.role import SETTLING, Role
from controller.preempt.manager import PreemptionManager
from controller.profiles.current import NOTHING, Known
from controller.profiles.racks import Racks
from controller.slurm.client import HOLD_MARK, USER_HOLD_MARK, JobKey, Phase, SlurmClient, SlurmSnapshot
from controller.slurm.user_holds import HoldFolder, Holds, is_held_by_user, own_holds, settled
from controller.state.journal import Journal, RunRecord
from controller.state.ledger import Ledger

log = structlog.get_logger(__name__)

_PASSING = frozenset({Phase.CONFIGURING, Phase.COMPLETING})


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle found and did."""

    observation: Observation
    changes: JobChanges
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
        preemptions: PreemptionManager,
    ) -> None:
        self.settings = settings
        self._client = client
        self._decider = decider
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._observer = Observer()
        self._preemptions = preemptions
        self._stops = PolicyStops(preemptions, events)
        self.holds = HoldFolder(settings.holds_path)
        self._applier = Applier(client, journal, ledger, events, clock, self.holds)
        self._keeper = LedgerKeeper(journal, ledger, events)
        self._decisions = DecisionLog(journal, events, clock)
        self._started: set[JobKey] = set()
        """Jobs that have started, and may have the mark of those that are about to."""
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
        """Steps since Slurm last did anything that was asked of it; 0 while all were about one job."""
        return self._applier.refused_in_a_row

    @property
    def slurm_errors(self) -> int:
        """Steps that Slurm refused, since the start."""
        return self._applier.errors

    def on_progress(self, call: Callable[[], None]) -> None:
        """Call this whenever Slurm has done something that was asked of it, in the middle of a long cycle too."""
        self._applier.progress = call

    async def run(self, snapshot: SlurmSnapshot, holds: Holds | None = None) -> CycleResult:
        """Everything that this snapshot calls for. `holds`: what users had held before the snapshot was read."""
        found = self._keeper.follow(snapshot, self.settings)
        self._applier.keep(self._keeper.jobs)
        self._preemptions.see(snapshot)
        self._forget_holds(holds or {}, snapshot)
        await self._applier.leave(self._preemptions.called_off.marked)
        await self.errands()
        await self._unmark_started(found)
        may_stop = self._stops.preemptible(self._keeper.jobs.values(), self.settings, self._clock.now())
        self._ledger.kept_off = self._preemptions.kept_off(self._keeper.jobs.values(), snapshot)
        observation = self._observer.observe(snapshot, self._ledger, self._partitions, self.measured, may_stop)
        observation = await self._settle(observation)
        decided = None
        if len(observation.state.pending):
            decided = await self._decide(observation)
        in_transit = self._preemptions.moving or self._stops.look_again or _in_transit(observation, decided)
        return CycleResult(observation, found, self._keeper.take_runs(), decided, in_transit)

    async def errands(self) -> bool:
        """Stop the jobs that have saved, and tell those that requeue themselves. Between two cycles too: nothing is read before.

        Whether anything has changed in Slurm.
        """
        stops, signals = self._preemptions.orders()
        done = False
        try:
            for rows, order, told in (
                (stops, self._applier.stop, self._preemptions.stopped),
                (signals, lambda why: self._applier.signal(why, "USR1"), self._preemptions.signalled),
            ):
                if rows:
                    why = {JobKey(row.job_id, row.submit_time_s): f"preemption {row.number}: {row.why}" for row in rows}
                    failed = await order(why)
                    for key, row in zip(why, rows, strict=True):
                        told(row, failed.get(key))
                    done = done or len(failed) < len(rows)
        finally:
            self._preemptions.orders_over()
        return done

    async def _unmark_started(self, found: JobChanges) -> None:
        """Take marks that no longer hold off jobs that have started; what fails is tried again."""
        self._started.update(job.key for job in found.started)
        known = [job for key in self._started if (job := self._keeper.jobs.get(key)) is not None]
        running = [job for job in known if job.phase.holds_nodes]
        placed = [job.key for job in running if job.has_pin_mark]
        # Its user has taken the hold off while nobody looked: whoever holds it next is somebody else.
        let_go = [job.key for job in running if USER_HOLD_MARK in job.marks and not job.held]
        # What is to be stopped may have been marked for that this moment; what is not to be stopped after all has been seen to.
        to_stop = {raw_id for raw_id, row in self._preemptions.open.items() if row.stopped_s is None}
        marked = [job for job in running if HOLD_MARK in job.marks and not job.held and job.raw_id not in to_stop]
        ours = [job.key for job in marked if job.key not in self._preemptions.called_off.marked]
        failed = {
            **await self._applier.arrived(placed),
            **await self._applier.unmark(let_go, USER_HOLD_MARK),
            **await self._applier.unmark(ours, HOLD_MARK),
        }
        self._started = {key for key, failure in failed.items() if failure.unavailable}

    def _forget_holds(self, holds: Holds, snapshot: SlurmSnapshot) -> None:
        """Holds that have become their users' own, or came too late, need no file any more."""
        own = own_holds(holds, snapshot.jobs)
        if own:
            holds = {**holds, **self._write_holds(own)}
        done = settled(holds, snapshot.jobs)
        if not done:
            return
        late = [job for job in snapshot.jobs if job.phase.holds_nodes and is_held_by_user(job, holds)]
        for job in late:
            if job.key.job_id in done:
                self._events.add("error", job.key.job_id, "its user's hold came when Slurm was starting it: it runs")
        try:
            self.holds.remove(done)
        except OSError as error:  # they are tried again with every cycle, and do no harm
            log.warning("holds_left", problem=str(error))

    def _write_holds(self, holds: Holds) -> Holds:
        """Write holds down as far as there is room. Returns those that are written."""
        written: dict[str, float] = {}
        for job_id, time_s in list(holds.items())[: self.holds.room]:
            try:
                self.holds.write(job_id, time_s)
            except OSError as error:  # the hold of its array stays
                log.warning("hold_not_written", job=job_id, problem=str(error))
                break
            written[job_id] = time_s
        return written

    async def _settle(self, observation: Observation) -> Observation:
        """Holds, refusals and jobs that only Slurm can place come first; the policy sees the queue after them."""
        handed = await self._applier.hand_over(observation.jobs.values())
        interrupted = [key for key in observation.twice_marked if key not in handed]
        await self._applier.finish_hand_over(interrupted)
        changed = [*handed, *interrupted]
        to_adopt = [key for key in observation.to_adopt if key not in handed]
        if to_adopt:
            failed = await self._applier.adopt([observation.jobs[key] for key in to_adopt])
            changed += [key for key in to_adopt if key not in failed]
        to_slurm = {key: why for key, why in observation.to_yield.items() if key not in handed}
        refused = overdue(observation, self._ledger, self.settings.start_grace_s)
        refused = {key: why for key, why in refused.items() if key not in handed}
        if refused:
            alike = put_off(observation, refused, self._ledger)
            await self._applier.refuse(refused)
            self._applier.put_off(alike)
            to_slurm |= hopeless(refused, self._ledger)
            changed += refused
        if to_slurm:
            await self._applier.give_to_slurm(observation.jobs, to_slurm)
            changed += to_slurm
        let_go = stranded(observation, self._ledger)
        if let_go:
            self._let_go(let_go)
        if not changed and not let_go:
            return observation
        snapshot = await self._reread(observation.snapshot, changed)
        measured, may_stop = observation.measured, observation.preemptible
        return self._observer.observe(snapshot, self._ledger, self._partitions, measured, may_stop)

    def _let_go(self, reasons: dict[JobKey, str]) -> None:
        for key, why in reasons.items():
            self._ledger.clear_constraint(key)
            self._events.add("preempt", key.job_id, why)
        self._journal.save_jobs(self._ledger, reasons)

    async def _reread(self, snapshot: SlurmSnapshot, keys: list[JobKey]) -> SlurmSnapshot:
        fresh = await self._client.read(keys)
        wanted = set(keys)
        kept = [fresh.get(job.key, job) if job.key in wanted else job for job in snapshot.jobs]
        known = {job.key for job in snapshot.jobs}
        # Changing one task of an array makes it a job of its own, still under the same key.
        kept += [job for key, job in fresh.items() if key not in known]
        jobs = tuple(kept)
        self._keeper.refresh(job for job in jobs if job.key in wanted)
        return replace(snapshot, jobs=jobs)

    async def _decide(self, observation: Observation) -> Decided | None:
        decided = await self._decider.decide(observation.state)
        if decided is None:
            if self._decider.undecided_s < self.settings.stale_after_s:
                return None  # the next cycle asks again; they wait no longer than for a controller that is away
            waiting = {
                observation.rows[row].key: "no policy could decide" for row in observation.state.pending.tolist()
            }
            await self._applier.give_to_slurm(observation.jobs, waiting)
            return None
        # A plan may start thousands: the rest is decided on again, once these are on their way.
        decided = replace(decided, plan=decided.plan.first(self._applier.most_starts))
        self._decisions.record(observation, decided)
        if decided.plan.starts:
            await self._applier.start(observation, decided.plan.starts, decided.policy)
        if decided.plan.stops:
            self._stops.begin(decided.plan, observation, decided.policy, self.settings, self._clock.now())
        return decided


def _in_transit(observation: Observation, decided: Decided | None) -> bool:
    if decided is not None and decided.plan.starts:
        return True
    starting, running = Role.STARTING, Role.RUNNING
    for key, found in observation.standings.items():
        role = found.role
        if role is starting or found is SETTLING or (role is running and observation.jobs[key].phase in _PASSING):
            return True
    return False
