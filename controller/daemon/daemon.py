"""The controller: signals set flags, one cycle at a time, a lease that says that all is well.

Invariant: the lease is renewed only while cycles succeed, or a long one goes forward. Whatever hangs or breaks in here, the lease
grows stale, new jobs are no longer held, and the watchdog releases the held ones: Slurm goes on alone.
"""

from __future__ import annotations

import asyncio
import math
import os
import pwd
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from controller.base.backoff import Backoff
from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, HeadwayError, SlurmError, SlurmReplyError
from controller.base.events import EventLog
from controller.base.lease import Lease, write_lease
from controller.cycle.cycle import Cycle, CycleResult
from controller.cycle.decision.decider import Decider, PolicyEndpoint
from controller.cycle.health import CycleListener, Health
from controller.daemon.lessons import Lessons
from controller.daemon.pace import Pace, let_burst_end
from controller.daemon.wake_pipe import WakePipe, Woken
from controller.preempt.manager import PreemptionManager
from controller.profiles.current import Known
from controller.profiles.racks import Racks
from controller.slurm.client import SlurmClient, SlurmFacts, SlurmSnapshot
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from policies.api import PolicySpec
from policies.serving.runtime.gc_pauses import quiet_heap
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.supervise import Tasks, cancelled_by_others

if TYPE_CHECKING:
    from controller.contention.measurement import Measuring
    from controller.contention.service import Judging

log = structlog.get_logger(__name__)

_LOOK_AFTER_WAKE_S = 0.01
"""job_submit.lua writes just before the job exists: look a moment later."""
_QUIET_SHARE = 75.0
"""While nothing happens, reading Slurm takes at most one part in so many of all time: beside a queue of ten thousand jobs,
scontrol and the cycle after it then take about one percent of a core, and so does answering of slurmctld's."""
_BUSY_SHARE = 2.0
_MAX_BACKOFF_S = 30.0
_PRUNE_EVERY_S = 600.0
_FACTS_EVERY_S = 60.0
"""Slurm's settings are read again: `scontrol show config` is answered at once, and only after a reconfigure is it another."""
_LONGEST_PAUSE_S = 60.0
_FAILED_TOO_OFTEN = 3
"""Cycles that broke off in a row: what their first steps get done says no longer that all is well."""
_REFUSED_TOO_OFTEN = 10
"""Steps refused in a row, of more than one job: then it is not the jobs that are at fault."""


class Controller:
    """Everything that runs beside slurmctld, put together from its parts."""

    def __init__(
        self,
        settings: ControllerSettings,
        client: SlurmClient,
        decider: Decider,
        journal: Journal,
        clock: Clock,
        connect: Callable[[str], PolicyEndpoint],
    ) -> None:
        """`connect` makes an endpoint from an address, for `headway policy use`."""
        self.settings = settings
        self.client = client
        self.decider = decider
        self.journal = journal
        self.clock = clock
        self.ledger: Ledger = journal.load_ledger()
        self.events = EventLog(clock)
        journal.tell(lambda text: self.events.add("error", "", text))
        self.health = Health(started_s=clock.now(), begun_at_s=clock.monotonic())
        self.facts: SlurmFacts | None = None
        self._facts_s = -math.inf
        """When Slurm's settings were last read, on the monotonic clock."""
        self.last: CycleResult | None = None
        self.listeners: list[CycleListener] = []
        self.measuring: Measuring | None = None
        """Where agents are served: what they report."""
        self.judging: Judging | None = None
        """There too: what the contention threshold says."""
        self._connect = connect
        self.preemptions = PreemptionManager(settings, journal, self.ledger, self.events, clock)
        self._cycle = Cycle(settings, client, decider, journal, self.ledger, self.events, clock, self.preemptions)
        self._cycle.on_progress(self._note_progress)
        self._stop = asyncio.Event()
        self._swap = asyncio.Lock()
        self._pruned_s: float | None = None
        self._wake: WakePipe | None = None
        self.tasks = Tasks()
        """Everything that runs beside the cycles."""
        self._broken: Exception | None = None
        """Why there is nothing to go on for."""
        self.lessons = Lessons()
        self._policy: tuple[str, str] | None = None
        """Address and name of the policy that was last known to decide."""
        self._pace = Pace()
        self._broken_off = 0
        """Cycles since the last one that came to its end, with the one under way."""
        self._unseen = False
        """A job was announced that the last reading did not show yet."""

    @property
    def slurm_errors(self) -> int:
        """Steps and readings that Slurm refused, since the start."""
        return self._cycle.slurm_errors

    @property
    def newest_snapshot(self) -> SlurmSnapshot | None:
        """The snapshot of the last good cycle; None before the first."""
        return None if self.last is None else self.last.observation.snapshot

    def stop(self) -> None:
        """End after the step that is under way. The lease is left to run out, so that a restart goes unnoticed."""
        self._stop.set()
        if self._wake is not None:
            self._wake.nudge()

    def reload(self, settings: ControllerSettings) -> None:
        """Go on with other settings from the next cycle on."""
        self.settings = settings
        self._cycle.settings = settings
        self.preemptions.settings = settings
        self.decider.deadline_s = settings.policy_deadline_s
        self._facts_s = -math.inf
        self.events.add("policy", "", "settings read again")

    def know(self, measured: Known) -> None:
        """What is known of how running jobs do: the next snapshot says it."""
        self._cycle.measured = measured
        self._cycle.learn(self.measuring.models if self.measuring is not None else None)

    def hang(self, racks: Racks) -> None:
        """Nodes hang so: the next snapshot says it."""
        self._cycle.hang(racks)

    async def use_policy(self, address: str) -> PolicySpec:
        """Swap the policy server. Raises PolicyUnavailableError, and keeps the old one, when the new one is not fit."""
        async with self._swap:
            state = self.last.observation.state if self.last is not None else None
            spec = await self.decider.use(self._connect(address), state)
            self._policy = (self.decider.address, spec.name)
        self.events.add("policy", "", f"{spec.name} at {address} decides from now on")
        return spec

    def _note_policy(self) -> None:
        """Tell of another policy at the same address: a server was restarted as another one, and nobody said so."""
        spec = self.decider.spec
        if spec is None or (self.decider.address, spec.name) == self._policy:
            return
        before, self._policy = self._policy, (self.decider.address, spec.name)
        if before is not None and before[0] == self.decider.address:
            log.warning("policy_changed", address=self.decider.address, before=before[1], now=spec.name)
            self.events.add("policy", "", f"{spec.name} answers at {self.decider.address} now, in place of {before[1]}")

    async def run(self, wake: WakePipe, notifier: Notifier) -> None:
        """Cycle until `stop`. Renews the lease beside it."""
        self._wake = wake
        await self.decider.greet()
        try:
            async with (
                self.tasks.running("lease", lambda: self._beat(wake, notifier), failed=self._give_up),
                self.tasks.running("learn", lambda: self.lessons.teach(self.decider)),
            ):
                with quiet_heap() as heap:
                    while not self._stop.is_set():
                        pause_s = await self._one_cycle(wake)
                        self.health.last_cycle_s = self.clock.monotonic()
                        heap.tidy()
                        await self._pause_or_stop_jobs(wake, pause_s)
                    if self._cycle.holds.read():  # systemd removes the folder when the unit stops for good
                        await self._one_cycle(wake)
        finally:
            await self.decider.close()
        if self._broken is not None:
            raise self._broken

    def _give_up(self, error: Exception) -> None:
        """Without a heartbeat there is nothing to go on for."""
        self._broken = error
        self.stop()

    async def _one_cycle(self, wake: WakePipe) -> float:
        """Read, act, and say how long to wait at most before the next time."""
        woken = wake.take()
        try:
            self.journal.require_well()
            await self._read_facts(wake)
            begun_s = self.clock.monotonic()
            self._pace.taken(self.clock.monotonic())
            holds = self._cycle.holds.read()  # before the snapshot, which then shows what has become of their jobs
            snapshot = await self.client.snapshot()
            self.health.read_s = self.clock.monotonic() - begun_s
            self.health.snapshot_time_s = snapshot.time_s
            self._broken_off += 1
            result = await self._cycle.run(snapshot, holds)
            if result.decided is None:  # nobody had to be asked, so a server that was restarted is not known yet
                await self.decider.greet()
            self._note_policy()
            self._note_success(result)
        except ConfigurationError:
            raise  # no later cycle would go better
        except SlurmError as error:
            return self._slurm_failed(error)
        except HeadwayError as error:
            self._failed(str(error))
            return self.settings.poll_interval_s
        except (Exception, asyncio.CancelledError) as error:
            # A bug must cost a cycle, not the daemon: the lease tells how long it lasts.
            if isinstance(error, asyncio.CancelledError) and not cancelled_by_others():
                raise
            log.exception("cycle_failed")
            self._failed(f"{type(error).__name__}: {error}")
            return self.settings.poll_interval_s
        self._unseen = woken.submitted > len(result.changes.new)
        if self._unseen:  # announced, but not there yet when we looked
            return _LOOK_AFTER_WAKE_S
        if result.in_transit:
            return self.settings.min_poll_interval_s
        return self._quiet_s()

    async def _read_facts(self, wake: WakePipe) -> None:
        """Read Slurm's settings, now and then again: `scontrol reconfigure` may have changed them (PrivateData)."""
        now_s = self.clock.monotonic()
        if self.facts is None:
            facts = await self.client.facts()
            _require_rights(facts)
            _let_slurm_write(wake, self._cycle.holds, facts)
            self.facts = facts
        elif now_s - self._facts_s >= _FACTS_EVERY_S:
            try:
                self.facts = await self.client.facts()
            except SlurmReplyError as error:
                log.warning("settings_not_read_again", problem=str(error))
        else:
            return
        self._facts_s = now_s

    def _note_success(self, result: CycleResult) -> None:
        """A cycle went through. Where Slurm refuses all that we ask, the lease is left to run out: Slurm is better off alone."""
        self.last = result
        self.health.cycles += 1
        self._broken_off = 0
        self.health.slurm_away = 0
        if self._cycle.refused_in_a_row < _REFUSED_TOO_OFTEN:
            self.health.last_error = ""
            self.health.last_good_s, self.health.good_at_s = self.clock.now(), self.clock.monotonic()
        else:
            self._failed(
                f"Slurm has refused the last {self._cycle.refused_in_a_row} steps; `headway events` lists them"
            )
        for listener in self.listeners:
            listener(result)
        self._prune()
        self.lessons.add(result.runs)

    def _note_progress(self) -> None:
        """Slurm has done a part of what a cycle asks of it: however long the cycle takes, the lease stays good meanwhile.

        Where cycle after cycle breaks off it does not: then nobody is placed, whatever is done before.
        """
        self.health.last_cycle_s = self.clock.monotonic()
        if self.health.good_at_s is not None and self._broken_off <= _FAILED_TOO_OFTEN:
            self.health.good_at_s = self.clock.monotonic()
            self.health.last_good_s = self.clock.now()

    def _quiet_s(self) -> float:
        """Pause while nothing happens: longer where reading Slurm costs more."""
        return max(self.settings.poll_interval_s, min(self.health.read_s * _QUIET_SHARE, _LONGEST_PAUSE_S))

    def _slurm_failed(self, error: SlurmError) -> float:
        """slurmctld slow or away: ask less and less often, up to twice a minute."""
        self.health.slurm_away += 1
        self._failed(str(error))
        return Backoff(self.settings.min_poll_interval_s, _MAX_BACKOFF_S).pause_s(self.health.slurm_away)

    def _failed(self, problem: str) -> None:
        if problem != self.health.last_error:
            log.error("cycle_failed", problem=problem)
            self.events.add("error", "", problem)
        self.health.last_error = problem

    @property
    def _least_s(self) -> float:
        """Time between two readings at the least: slurmctld never sees more than one bulk query a second."""
        return max(self.settings.min_poll_interval_s, self.health.read_s * _BUSY_SHARE)

    async def _pause_or_stop_jobs(self, wake: WakePipe, longest_s: float) -> None:
        """The pause between two readings; jobs that have saved meanwhile are stopped at once, because they stand still."""
        pause = asyncio.ensure_future(self._pause(wake, longest_s))
        wanted = self.preemptions.wanted
        try:
            while not pause.done():
                order = asyncio.ensure_future(wanted.wait())
                await asyncio.wait({pause, order}, return_when=asyncio.FIRST_COMPLETED)
                order.cancel()
                if not pause.done():
                    await self._stop_jobs(wake)
            pause.result()
        finally:
            pause.cancel()
            await asyncio.gather(pause, return_exceptions=True)

    async def _stop_jobs(self, wake: WakePipe) -> None:
        """What the cycle would do next time, now. Where that shows, the next reading is as soon as may be."""
        try:
            if await self._cycle.errands():
                wake.nudge()
        except HeadwayError as error:
            self._failed(str(error))
        except Exception as error:  # a bug here must cost a preemption, not the daemon
            log.exception("stopping_failed")
            self._failed(f"{type(error).__name__}: {error}")

    async def _pause(self, wake: WakePipe, longest_s: float) -> None:
        """Until something happens, or the time is over; but never so short that `Pace` is broken."""
        if self.health.slurm_away:
            await self._sleep_unless_stopped(longest_s)
            return
        await wake.wait(longest_s)
        if not self._unseen:
            due_s = self._pace.wait_s(self.clock.monotonic(), self._least_s, hurry=self._somebody_waits)
            await wake.wait(due_s, self._in_a_hurry)
        soonest_s = self._pace.wait_s(self.clock.monotonic(), self._least_s)
        await self._sleep_unless_stopped(max(soonest_s, _LOOK_AFTER_WAKE_S))
        await let_burst_end(lambda: wake.so_far.submitted, self._sleep_unless_stopped)

    @property
    def _somebody_waits(self) -> bool:
        """A job that was stopped a moment ago waits too, though it may not be placed yet."""
        return self.preemptions.moving or (self.last is not None and len(self.last.observation.state.pending) > 0)

    def _in_a_hurry(self, woken: Woken) -> bool:
        """Somebody submitted or held a job, or jobs wait for what has just become free."""
        return bool(woken.submitted or woken.user_holds or (woken.ended and self._somebody_waits))

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._stop.wait()

    async def _beat(self, wake: WakePipe, notifier: Notifier) -> None:
        """Renew the lease while cycles succeed; tell systemd while they end at all."""
        ready = False
        while True:
            now_s, good_s, cycle_s = self.clock.monotonic(), self.health.good_at_s, self.health.last_cycle_s
            if good_s is not None and now_s - good_s <= self._patience_s():
                try:
                    self._renew_lease(wake, self.clock.now())
                except (OSError, ValueError) as error:
                    self._failed(f"{self.settings.lease_path}: the lease cannot be written: {error}")
            if cycle_s is not None and now_s - cycle_s <= self._patience_s() + _MAX_BACKOFF_S:
                notifier.watchdog()
                if not ready:
                    ready = True
                    notifier.ready()
            await asyncio.sleep(self.settings.heartbeat_interval_s)

    def _renew_lease(self, wake: WakePipe, now_s: float) -> None:
        lease = Lease(
            time_s=int(now_s),
            stale_after_s=self.settings.stale_after_s,
            partitions=self.settings.partitions,
            controller_uid=os.getuid(),
            wake_room_bytes=wake.room_bytes,
            holds_room=self._cycle.holds.room,
        )
        write_lease(self.settings.lease_path, lease)

    def _patience_s(self) -> float:
        """How old the last good cycle may be: longer than the longest pause between two."""
        return self._quiet_s() + max(self.settings.stale_after_s / 2, 2 * self.settings.heartbeat_interval_s)

    def _prune(self) -> None:
        at_s = self.clock.monotonic()
        if self._pruned_s is None or at_s - self._pruned_s > _PRUNE_EVERY_S:
            self._pruned_s = at_s
            oldest_s = self.clock.now() - self.settings.keep_days * 86400
            self.journal.prune(self.settings.keep_decisions, oldest_s)


def _require_rights(facts: SlurmFacts) -> None:
    """Only root and SlurmUser may hold and place everybody's jobs. Raises ConfigurationError."""
    found = re.search(r"\((\d+)\)", facts.settings.get("SlurmUser", ""))
    if found is not None and os.getuid() not in {0, int(found[1])}:
        raise ConfigurationError(
            f"the controller runs as uid {os.getuid()}, whose changes Slurm refuses; run it as root or as SlurmUser "
            f"({facts.settings['SlurmUser']}), as systemd/headway-controller.service does"
        )


def _let_slurm_write(wake: WakePipe, holds: HoldFolder, facts: SlurmFacts) -> None:
    """Where SlurmUser, as whom job_submit.lua runs, is not the controller's own user, its group may write into both."""
    name = facts.settings.get("SlurmUser", "").split("(")[0]
    try:
        entry = pwd.getpwnam(name)
        if entry.pw_uid not in {0, os.getuid()}:
            wake.grant(entry.pw_gid)
            holds.grant(entry.pw_gid)
    except (KeyError, OSError) as error:
        log.warning("wake_pipe_closed_to_slurm", user=name, problem=str(error))


@contextmanager
def stop_signals(controller: Controller, reload: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT end the controller after its current step; SIGHUP calls `reload`."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, controller.stop)
    loop.add_signal_handler(signal.SIGINT, controller.stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
