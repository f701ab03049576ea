"""The controller: signals set flags, one cycle at a time, a lease that says that all is well.

Invariant: the lease is renewed only while cycles succeed. Whatever hangs or breaks in here, the lease grows stale, new jobs
are no longer held, and the watchdog releases the held ones: Slurm goes on alone.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from controller.clock import Clock
from controller.config import ControllerSettings
from controller.contention import Known
from controller.cycle import Cycle, CycleResult
from controller.decide import Decider, PolicyEndpoint
from controller.errors import ConfigurationError, HeadwayError, SlurmError
from controller.events import EventLog
from controller.journal import Journal, RunRecord
from controller.lease import Lease, write_lease
from controller.ledger import Ledger
from controller.pace import Pace, let_burst_end
from controller.preempting import Preempting
from controller.racks import Racks
from controller.slurm.client import SlurmClient, SlurmFacts
from controller.wake import WakePipe, Woken
from policies.api import Outcome, PolicySpec
from policies.heap import quiet_heap
from policies.sdnotify import Notifier

if TYPE_CHECKING:
    from controller.judging import Judging
    from controller.measuring import Measuring

log = structlog.get_logger(__name__)

_LOOK_AFTER_WAKE_S = 0.01
"""job_submit.lua writes just before the job exists: look a moment later."""
_QUIET_SHARE = 75.0
"""While nothing happens, reading Slurm takes at most one part in so many of all time: beside a queue of ten thousand jobs,
scontrol and the cycle after it then take about one percent of a core, and so does answering of slurmctld's."""
_BUSY_SHARE = 2.0
_MAX_BACKOFF_S = 30.0
_PRUNE_EVERY_S = 600.0
_LONGEST_PAUSE_S = 60.0
_REFUSED_TOO_OFTEN = 10
"""Steps refused in a row, by all jobs: then it is not the jobs that are at fault."""


CycleListener = Callable[[CycleResult], None]
"""Told of every good cycle, in the event loop: it must not wait, and must not raise."""


@dataclass(slots=True)
class Health:
    """What `headway status` tells of the controller itself."""

    started_s: float
    last_good_s: float = 0.0
    """End of the last cycle that succeeded; 0 = none yet."""
    last_cycle_s: float = 0.0
    """End of the last cycle, however it ended."""
    snapshot_time_s: float = 0.0
    read_s: float = 0.0
    cycles: int = 0
    last_error: str = ""
    slurm_away: int = 0
    """Readings in a row that slurmctld did not answer."""


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
        self.health = Health(started_s=clock.now())
        self.facts: SlurmFacts | None = None
        self.last: CycleResult | None = None
        self.listeners: list[CycleListener] = []
        self.measuring: Measuring | None = None
        """Where agents are served: what they report."""
        self.judging: Judging | None = None
        """There too: what the contention threshold says."""
        self._connect = connect
        self.preempting = Preempting(settings, journal, self.ledger, self.events, clock)
        self._cycle = Cycle(settings, client, decider, journal, self.ledger, self.events, clock, self.preempting)
        self._stop = asyncio.Event()
        self._swap = asyncio.Lock()
        self._pruned_s = 0.0
        self._wake: WakePipe | None = None
        self._lesson: asyncio.Task[None] | None = None
        self._user_holds: set[str] = set()
        """Holds that users were promised, until a cycle has seen to them."""
        self._pace = Pace()
        self._unseen = False
        """A job was announced that the last reading did not show yet."""

    @property
    def slurm_errors(self) -> int:
        """Steps and readings that Slurm refused, since the start."""
        return self._cycle.slurm_errors

    def stop(self) -> None:
        """End after the step that is under way. The lease is left to run out, so that a restart goes unnoticed."""
        self._stop.set()
        if self._wake is not None:
            self._wake.nudge()

    def reload(self, settings: ControllerSettings) -> None:
        """Go on with other settings from the next cycle on."""
        self.settings = settings
        self._cycle.settings = settings
        self.preempting.settings = settings
        self.decider.deadline_s = settings.policy_deadline_s
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
        self.events.add("policy", "", f"{spec.name} at {address} decides from now on")
        return spec

    async def run(self, wake: WakePipe, notifier: Notifier) -> None:
        """Cycle until `stop`. Renews the lease beside it."""
        self._wake = wake
        await self.decider.greet()
        beat = asyncio.create_task(self._beat(wake, notifier), name="lease")
        try:
            with quiet_heap() as heap:
                while not self._stop.is_set():
                    pause_s = await self._one_cycle(wake)
                    self.health.last_cycle_s = self.clock.now()
                    heap.tidy()
                    if beat.done():
                        beat.result()  # without a heartbeat there is nothing to go on for
                    await self._pause_or_stop_jobs(wake, pause_s)
        finally:
            tasks = [task for task in (beat, self._lesson) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.decider.close()

    async def _one_cycle(self, wake: WakePipe) -> float:
        """Read, act, and say how long to wait at most before the next time."""
        woken = wake.take()
        self._user_holds.update(woken.user_holds)
        begun_s = self.clock.now()
        try:
            if self.facts is None:
                facts = await self.client.facts()
                _require_rights(facts)
                _let_slurm_write(wake, facts)
                self.facts = facts
            self._pace.taken(self.clock.now())
            snapshot = await self.client.snapshot()
            self.health.read_s = self.clock.now() - begun_s
            self.health.snapshot_time_s = snapshot.time_s
            result = await self._cycle.run(snapshot, self._user_holds)
            self._note_success(result)
        except ConfigurationError:
            raise  # no later cycle would go better
        except SlurmError as error:
            return self._slurm_failed(error)
        except HeadwayError as error:
            self._failed(str(error))
            return self.settings.poll_interval_s
        except Exception as error:  # a bug must cost a cycle, not the daemon: the lease tells how long it lasts
            log.exception("cycle_failed")
            self._failed(f"{type(error).__name__}: {error}")
            return self.settings.poll_interval_s
        self._unseen = woken.submitted > len(result.changes.new)
        if self._unseen:  # announced, but not there yet when we looked
            return _LOOK_AFTER_WAKE_S
        if result.in_transit:
            return self.settings.min_poll_interval_s
        return self._quiet_s()

    def _note_success(self, result: CycleResult) -> None:
        """A cycle went through. Where Slurm refuses all that we ask, the lease is left to run out: Slurm is better off alone."""
        self.last = result
        self._user_holds.clear()
        self.health.cycles += 1
        self.health.slurm_away = 0
        if self._cycle.refused_in_a_row < _REFUSED_TOO_OFTEN:
            self.health.last_error = ""
            self.health.last_good_s = self.clock.now()
        else:
            self._failed(
                f"Slurm has refused the last {self._cycle.refused_in_a_row} steps; `headway events` lists them"
            )
        for listener in self.listeners:
            listener(result)
        self._prune()
        self._teach(result.runs)

    def _quiet_s(self) -> float:
        """Pause while nothing happens: longer where reading Slurm costs more."""
        return max(self.settings.poll_interval_s, min(self.health.read_s * _QUIET_SHARE, _LONGEST_PAUSE_S))

    def _slurm_failed(self, error: SlurmError) -> float:
        """slurmctld slow or away: ask less and less often, up to twice a minute."""
        self.health.slurm_away += 1
        self._failed(str(error))
        return float(min(self.settings.min_poll_interval_s * 2 ** min(self.health.slurm_away, 10), _MAX_BACKOFF_S))

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
        wanted = self.preempting.wanted
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
            due_s = self._pace.wait_s(self.clock.now(), self._least_s, hurry=self._somebody_waits)
            await wake.wait(due_s, self._in_a_hurry)
        soonest_s = self._pace.wait_s(self.clock.now(), self._least_s)
        await self._sleep_unless_stopped(max(soonest_s, _LOOK_AFTER_WAKE_S))
        await let_burst_end(lambda: wake.so_far.submitted, self._sleep_unless_stopped)

    @property
    def _somebody_waits(self) -> bool:
        """A job that was stopped a moment ago waits too, though it may not be placed yet."""
        return self.preempting.moving or (self.last is not None and len(self.last.observation.state.pending) > 0)

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
            now_s = self.clock.now()
            if self.health.last_good_s and abs(now_s - self.health.last_good_s) <= self._patience_s():
                try:
                    self._renew_lease(wake, now_s)
                except (OSError, ValueError) as error:
                    self._failed(f"{self.settings.lease_path}: the lease cannot be written: {error}")
            if (
                self.health.last_cycle_s
                and abs(now_s - self.health.last_cycle_s) <= self._patience_s() + _MAX_BACKOFF_S
            ):
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
        )
        write_lease(self.settings.lease_path, lease)

    def _patience_s(self) -> float:
        """How old the last good cycle may be: longer than the longest pause between two."""
        return self._quiet_s() + max(self.settings.stale_after_s / 2, 2 * self.settings.heartbeat_interval_s)

    def _teach(self, runs: tuple[RunRecord, ...]) -> None:
        """Tell the policy server how jobs ended, beside the cycle; one telling at a time."""
        if runs and (self._lesson is None or self._lesson.done()):
            self._lesson = asyncio.create_task(self.decider.learn([_outcome(run) for run in runs]), name="learn")

    def _prune(self) -> None:
        now_s = self.clock.now()
        if now_s - self._pruned_s > _PRUNE_EVERY_S:
            self._pruned_s = now_s
            self.journal.prune(self.settings.keep_decisions, now_s - self.settings.keep_days * 86400)


def _outcome(run: RunRecord) -> Outcome:
    return Outcome(
        job_id=run.key.job_id,
        user=run.user,
        job_name=run.name,
        submit_time_s=run.key.submit_time_s,
        start_time_s=run.end_time_s if run.start_time_s is None else run.start_time_s,
        finish_time_s=run.end_time_s,
        num_gpus=run.num_gpus,
        num_nodes=run.num_nodes,
        service_s=run.service_s,
        final_state=run.state,
    )


def _require_rights(facts: SlurmFacts) -> None:
    """Only root and SlurmUser may hold and place everybody's jobs. Raises ConfigurationError."""
    found = re.search(r"\((\d+)\)", facts.settings.get("SlurmUser", ""))
    if found is not None and os.getuid() not in {0, int(found[1])}:
        raise ConfigurationError(
            f"the controller runs as uid {os.getuid()}, whose changes Slurm refuses; run it as root or as SlurmUser "
            f"({facts.settings['SlurmUser']}), as systemd/headway-controller.service does"
        )


def _let_slurm_write(wake: WakePipe, facts: SlurmFacts) -> None:
    """job_submit.lua runs as SlurmUser: where that is not the controller's own user, its group may write into the pipe."""
    name = facts.settings.get("SlurmUser", "").split("(")[0]
    try:
        entry = pwd.getpwnam(name)
        if entry.pw_uid not in {0, os.getuid()}:
            wake.grant(entry.pw_gid)
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
