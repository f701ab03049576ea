"""The controller: signals set flags, cycles run one after the other, and a lease shows that they succeed.

Invariant: the lease is renewed only while cycles succeed, or a long one makes progress. Whatever hangs or breaks in here, the
lease becomes stale, new jobs are no longer held, and the watchdog releases the held ones: Slurm continues alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, HeadwayError, SlurmError, TurnLostError
from controller.base.events import EventLog
from controller.base.lease import is_stale, read_lease
from controller.base.listener_failures import ListenerFailures
from controller.base.turn import Turn, controller_turn
from controller.cycle.cycle import Cycle
from controller.cycle.decision.decider import Decider
from controller.cycle.decision.server import PolicyEndpoint
from controller.cycle.view.health import CycleListener, Health
from controller.cycle.view.result import CycleResult
from controller.daemon.audit_trail import AuditTrail
from controller.daemon.ending import Ending
from controller.daemon.heartbeat import Heartbeat
from controller.daemon.lessons import OutcomeQueue
from controller.daemon.pacing.intervals import Intervals
from controller.daemon.pacing.pace import let_others_run
from controller.daemon.pacing.pause import READ_AFTER_WAKE_S, Pause
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.daemon.partitions import UnknownPartitions
from controller.daemon.policy_swap import PolicySwap
from controller.daemon.slurm_settings import SlurmSettings
from controller.observe.knowledge import Knowledge
from controller.preempt.manager import PreemptionManager
from controller.slurm.client import SlurmClient, SlurmFacts
from controller.slurm.configuration.requeue_delay import requeue_delay_s
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from policies.api import PolicySpec
from policies.serving.runtime.gc_pauses import paused_collector
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.supervise import Tasks, is_own_end

log = structlog.get_logger(__name__)

_PRUNE_EVERY_S = 600.0
_FAILED_TOO_OFTEN = 3
"""Number of consecutive broken off cycles after which steps that Slurm still carries out no longer renew the lease."""
_REFUSED_TOO_OFTEN = 10
"""Number of consecutive refused steps, of more than one job, after which the lease is no longer renewed: the jobs are not the
cause."""


class Controller:
    """Runs one cycle after the other beside slurmctld, and implements `ControllerView` for the services around them."""

    def __init__(
        self,
        settings: ControllerSettings,
        client: SlurmClient,
        decider: Decider,
        journal: Journal,
        clock: Clock,
        connect: Callable[[str], PolicyEndpoint],
        events: EventLog | None = None,
        audit: AuditTrail | None = None,
        turn: Turn | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        """`connect` makes an endpoint from an address, for `headway policy use`. Without `events` they are not kept on disk,
        without `audit` no request is recorded. `turn` is given if the client checks it before its commands, too, and
        `tasks` if others count failures there, too."""
        self.settings = settings
        self.client = client
        self.decider = decider
        self.journal = journal
        self.clock = clock
        self.ledger: Ledger = journal.load_ledger()
        self.events = EventLog(clock) if events is None else events
        journal.notify(lambda text: self.events.add("error", "", text))
        self.health = Health(started_s=clock.now(), begun_at_s=clock.monotonic())
        self.last: CycleResult | None = None
        self._snapshot: SlurmSnapshot | None = None
        self.listeners: list[CycleListener] = []
        """Bound: the services, each once."""
        self.knowledge = Knowledge()
        self._listener_failures = ListenerFailures(self.events, self._note_listener_failure)
        self.preemptions = PreemptionManager(
            self._current_settings,
            journal,
            self.ledger,
            self.events,
            clock,
            clock.monotonic,
            self._listener_failures,
        )
        self.tasks = Tasks(monotonic=clock.monotonic, now=clock.now) if tasks is None else tasks
        self.outcomes = OutcomeQueue(decider.count_lost)
        self._audit = audit
        if audit is not None:
            self.preemptions.listeners.append(audit.note_preemption)
        self._holds = HoldFolder(settings.holds_path)
        self._turn = turn or controller_turn(settings.runtime_dir, settings.slurm_timeout_s, clock)
        self._cycle = Cycle(
            self._current_settings, client, decider, journal, self.ledger, self.events, clock, self.preemptions, self._holds,
            self.knowledge, progress=self._note_progress, before_change=self._turn.check, records_holds=self._has_fresh_lease,
        )  # fmt: skip
        self._ending = Ending()
        self._slurm_settings = SlurmSettings(client, clock, self._holds)
        self._partitions = UnknownPartitions()
        self._policies = PolicySwap(decider, connect, self.events)
        self._intervals = Intervals(self._current_settings, self.health)
        self._pause = Pause(self.health, self._intervals, clock, self._ending.requested, self._jobs_wait)
        self._pruned_s: float | None = None
        self._wake: WakePipe | None = None
        self._broken: Exception | None = None  # the failure of the heartbeat
        self._broken_off = 0
        """Number of cycles since the last complete one, including the present one."""

    def _current_settings(self) -> ControllerSettings:
        return self.settings

    def _has_fresh_lease(self) -> bool:
        return not is_stale(read_lease(self.settings.lease_path), self.clock.now())

    @property
    def facts(self) -> SlurmFacts | None:
        """Slurm's version and settings; None before the first answer."""
        return self._slurm_settings.facts

    @property
    def slurm_errors(self) -> int:
        """Number of jobs for which a step in Slurm has failed, since the start."""
        return self._cycle.verbs.errors

    def has_unreported(self, job_id: str) -> bool:
        """Return whether the job was seen to start or end, and no good cycle has reported it to `listeners` yet."""
        return self._cycle.has_unreported(job_id)

    @property
    def newest_snapshot(self) -> SlurmSnapshot | None:
        """The newest snapshot of Slurm, also when its cycle then broke off; None before the first."""
        return self._snapshot

    def stop(self) -> None:
        """End after the present cycle, or in it if it takes long. The lease is not withdrawn, so that a restart has no effect on
        jobs."""
        self._ending.request()
        if self._wake is not None:
            self._wake.nudge()

    def reload(self, settings: ControllerSettings) -> None:
        """Use other settings from the next cycle on."""
        self.settings = settings
        self.decider.set_deadline(settings.policy_deadline_s)
        self._slurm_settings.expire()
        self.events.add("policy", "", "settings read again")

    async def use_policy(self, address: str) -> PolicySpec:
        """Swap the policy server. Raises PolicyUnavailableError, and keeps the old one, when the new one fails a check."""
        return await self._policies.use(address, None if self.last is None else self.last.observation.state)

    async def run(self, wake: WakePipe, notifier: Notifier) -> None:
        """Run cycles until `stop`, and renew the lease beside them."""
        self._wake = wake
        heartbeat = Heartbeat(
            self._current_settings,
            self.health,
            self._intervals,
            self.clock,
            self._holds,
            self._failed,
            lambda: self.newest_snapshot,
            lambda name: None if self.facts is None else self.facts.settings.get(name),
        )
        try:
            await self.decider.refresh()
            async with (
                self.tasks.running("lease", lambda: heartbeat.run(wake, notifier), failed=self._give_up),
                self.tasks.running("learn", lambda: self.outcomes.report_to(self.decider)),
                self._ending.limited(),
            ):
                await self._cycles(wake)
        finally:
            await self.decider.close()
        if self._broken is not None:
            raise self._broken

    async def _cycles(self, wake: WakePipe) -> None:
        with paused_collector() as collector:
            while not self._ending.requested.is_set():
                pause_s = await self._one_cycle(wake)
                self.health.last_cycle_s = self.clock.monotonic()
                await let_others_run()
                collector.collect()
                await let_others_run()
                await self._pause.wait(wake, pause_s, self.preemptions.wanted, lambda: self._errands(wake))
        if self._holds.read():  # systemd removes the folder when the unit stops for good
            await self._one_cycle(wake)

    def _give_up(self, error: Exception) -> None:
        """Stop, because without a heartbeat the lease becomes stale, whatever the cycles do."""
        self._broken = error
        self.stop()

    async def _one_cycle(self, wake: WakePipe) -> float:
        """Run one cycle. Returns the longest pause before the next cycle, seconds."""
        woken = wake.take()
        try:
            async with self._turn.taken():
                result = await self._read_and_run(wake)
        except ConfigurationError:
            raise  # every later cycle would fail too
        except TurnLostError as error:
            log.warning("cycle_broken_off", reason=str(error))
            return self.settings.min_poll_interval_s
        except SlurmError as error:
            self.health.slurm_away += 1
            self._failed(str(error))
            return self._intervals.away_s
        except HeadwayError as error:
            self._failed(str(error))
            return self.settings.poll_interval_s
        except (Exception, asyncio.CancelledError) as error:
            # A bug must end this cycle, not the daemon; if it lasts, the lease becomes stale.
            if is_own_end(error):
                raise
            log.exception("cycle_failed")
            self._failed(f"{type(error).__name__}: {error}")
            return self.settings.poll_interval_s
        missing = woken.submitted > len(result.changes.new)
        self._pause.note_missing(missing=missing)
        if missing:  # a job was announced, but did not exist yet when Slurm was read
            return READ_AFTER_WAKE_S
        return self.settings.min_poll_interval_s if result.in_transit else self._intervals.quiet_s

    async def _read_and_run(self, wake: WakePipe) -> CycleResult:
        self.journal.require_well()
        await self._slurm_settings.read(wake)
        if self.facts is not None:
            self.knowledge.set_requeue_delay(requeue_delay_s(self.facts.settings))
        begun_s = self.clock.monotonic()
        self._pause.reading_begins()
        # Before the snapshot, which then shows the state of these jobs, and the outcome of these steps.
        holds, newest_step = self._holds.read(), self.journal.newest_step()
        snapshot = await self.client.snapshot()
        self.health.note_reading(self.clock.monotonic() - begun_s)
        self.health.snapshot_time_s = snapshot.time_s
        self._snapshot = snapshot
        self._partitions.note(self.settings.partitions, snapshot)
        if self._audit is not None:
            self._audit.note_holds(holds, snapshot)
        self._broken_off += 1
        await let_others_run()
        result = await self._cycle.run(snapshot, holds, newest_step)
        # Without a decision, a server that was restarted is not known yet.
        if result.decided is None or self.decider.description_is_old:
            await self.decider.refresh()
        self._policies.note()
        self._turn.check()  # a cycle that has lost its turn has carried out only a part of its decision
        self._note_success(result)
        return result

    async def _errands(self, wake: WakePipe) -> None:
        """Stop and signal preempted jobs between two cycles. If that changes Slurm, it is read again as soon as possible."""
        try:
            async with self._turn.taken():
                changed = await self._cycle.errands()
            if changed:
                wake.nudge()
        except HeadwayError as error:
            self._failed(str(error))
        except (Exception, asyncio.CancelledError) as error:
            # A bug here must end a preemption, not the daemon.
            if is_own_end(error):
                raise
            log.exception("stopping_failed")
            self._failed(f"{type(error).__name__}: {error}")

    def _note_success(self, result: CycleResult) -> None:
        """Record a successful cycle. If Slurm refuses every step, the lease is no longer renewed."""
        self.last = result
        self._snapshot = result.observation.snapshot  # it has the changes of this cycle
        self.health.plan_s = result.plan_s
        log.debug("cycle", read_s=round(self.health.read_s, 3), plan_s=round(result.plan_s, 3))
        self.health.cycles += 1
        self._broken_off = 0
        self.health.slurm_away = 0
        refused = self._cycle.verbs.refused_in_a_row
        if refused < _REFUSED_TOO_OFTEN:
            self.health.last_error = ""
            self.health.last_good_s, self.health.good_at_s = self.clock.now(), self.clock.monotonic()
        else:
            self._failed(f"Slurm has refused the last {refused} steps; `headway events` lists them")
        self._report(result)
        self._prune()

    def _report(self, result: CycleResult) -> None:
        """Report the changes of this cycle, and of those that broke off before it, once."""
        self._cycle.reported()
        self.outcomes.add(result.runs)
        for listener in self.listeners:
            try:
                listener(result)
            except Exception as error:  # noqa: BLE001 - a bug in one service must not hide the changes from the others
                self._listener_failures.note(listener, error)

    def _note_listener_failure(self, problem: str) -> None:
        """Count it, and show it in the status until a cycle has no failure."""
        self.health.failures += 1
        self.health.last_error = problem

    def _note_progress(self) -> None:
        """Let the lease be renewed while Slurm carries out the steps of a long cycle.

        When one cycle after the other breaks off it is not renewed, because no job is placed then.
        """
        self.health.last_cycle_s = self.clock.monotonic()
        if self.health.good_at_s is not None and self._broken_off <= _FAILED_TOO_OFTEN:
            self.health.good_at_s = self.clock.monotonic()
            self.health.last_good_s = self.clock.now()

    def _failed(self, problem: str) -> None:
        self.health.failures += 1
        if problem != self.health.last_error:
            log.error("cycle_failed", problem=problem)
            self.events.add("error", "", problem)
        self.health.last_error = problem

    def _jobs_wait(self) -> bool:
        """Return whether jobs wait for nodes. A job that was stopped a moment ago counts too, although it may not be placed
        yet."""
        return self.preemptions.moving or (self.last is not None and len(self.last.observation.state.pending) > 0)

    def _prune(self) -> None:
        at_s = self.clock.monotonic()
        if self._pruned_s is None or at_s - self._pruned_s > _PRUNE_EVERY_S:
            self._pruned_s = at_s
            oldest_s = self.clock.now() - self.settings.keep_days * 86400
            self.journal.prune(self.settings.keep_decisions, oldest_s)
