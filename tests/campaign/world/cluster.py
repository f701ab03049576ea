"""The world of one story: an embedded Slurm, a whole controller and a watchdog as processes, agents, users and a model."""

from __future__ import annotations

import asyncio
import os
import random
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from controller.agents.reports.allocations import Allocations
from controller.agents.reports.report_screen import ReportScreen
from controller.base.config import ControllerSettings
from controller.base.errors import PolicyUnavailableError, SlurmError
from controller.base.events import KEPT, EventLog
from controller.base.lease import Lease, is_stale, read_lease
from controller.base.turn import controller_turn, watchdog_turn
from controller.cycle.decision.decider import Decider
from controller.cycle.decision.server import PolicyEndpoint
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.daemon.watchdog.watchdog import Watchdog
from controller.preempt.service import run_preemptions
from controller.profiles.sightings import Arrival
from controller.slurm.embedded import EmbeddedSlurm
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal
from controller.state.journal_salvage import read_originals, read_placed
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.supervise import Tasks
from protos.headway.v1 import agent_pb2
from tests.campaign.plot.story import JobSpec, Story
from tests.campaign.verdict.model import Model, Promise
from tests.campaign.world.answers import answers_of
from tests.campaign.world.client import StoryClient
from tests.campaign.world.description import description_of, submission_of
from tests.campaign.world.fleet import Fleet
from tests.campaign.world.journal_disk import limit, stand_still_at_writes
from tests.campaign.world.policy import StoryEndpoint, StoryServer, make_policy
from tests.campaign.world.processes import Process
from tests.campaign.world.services import Services
from tests.campaign.world.virtual_loop import LoopClock, VirtualLoop

STALE_AFTER_S = 15.0
_REST_S = 40.0
"""Seconds after which a step that waits for the middle of a cycle happens without one."""


class Cluster:
    """Everything of a story that is not a step. It is created within the story's event loop."""

    def __init__(
        self, story: Story, folder: Path, loop: VirtualLoop, limits: Mapping[str, int] | None = None, **settings: Any
    ) -> None:
        """`limits`: most GPUs of some users, instead of the story's; `settings`: of the controller, beside those of every story."""
        self.story, self.folder, self.loop = story, folder, loop
        self.slurm_clock, self.clock = LoopClock(loop), LoopClock(loop)
        names = [f"n{number}" for number in range(1, story.nodes + 1)]
        self.model = Model(self.slurm_clock.monotonic)
        self.model.features = {name: frozenset({"fast"} if name in {"n1", "n2"} else set()) for name in names}
        values: dict[str, Any] = {
            "partitions": (story.partition,),
            "runtime_dir": folder,
            "state_dir": folder / "state",
            "stale_after_s": STALE_AFTER_S,
            "start_grace_s": 5.0,
            "preemption": "automatic" if story.preemption else "off",
            "preemption_within_s": 10.0,
            "preemption_still_s": 20.0,
            "preemption_min_run_s": 5.0,
            "preemption_cooldown_s": 10.0,
        }
        self.settings = ControllerSettings(**{**values, **settings})
        self.settings.state_dir.mkdir()
        self.holds = HoldFolder(self.settings.holds_path)
        self.holds.make()
        self._wake_fd: int | None = None
        self.watchdog_every_s = 10.0
        self.events_kept = KEPT
        self.checks_answers = False
        """The controller is asked for its answers again and again."""
        self.limits = self.model.limits = limits or story.limits
        self.slurm = EmbeddedSlurm(
            description_of(story, names, self.limits),
            self.slurm_clock,
            lease=self._lease,
            wake=self._wake,
            holds=self.holds,
            accounting=self._account,
            client_clock=self.clock,
        )
        self.slurm.faults.most_jobs = story.most_at_once or None
        self.fleet = Fleet(names, self.slurm_clock.monotonic, self.slurm_clock.now)
        self.servers = {name: StoryServer(name, story.answer_s) for name in (story.policy, "srtf", "fifo-skip")}
        self.current_policy = story.policy
        self.ids: dict[int, list[str]] = {}
        """Label → ids of its jobs."""
        self.process = Process("controller")
        self.process.alive = False
        self.controller: Controller | None = None
        self.watchdog = Process("watchdog")
        self._dead: list[Process] = []
        """Kept, so that Python does not close their coroutines, which would carry out their `finally`."""
        self._gone = asyncio.Event()
        """The controller has died or ended."""
        self._restart_at_s = 0.0
        self._write_s = 0.0
        """Time that a write of the journal takes."""
        self.services: Services | None = None
        """What runs beside the cycles and takes in the agents' reports; None: nothing, and preemptions get the reports."""
        self.effects: Counter[str] = Counter()
        """Faults of each kind that have taken effect, but for those of Slurm's calls, which `slurm.faults` counts."""
        self.exits: list[BaseException] = []
        """Errors with which the controller has ended by itself."""

    # --- processes

    @asynccontextmanager
    async def running(self, *, watchdog: bool = True) -> AsyncIterator[None]:
        """Run Slurm, the agents, a controller and a watchdog. An error of this world itself breaks a promise of the story:
        otherwise only its later effects would show, such as a job that never starts."""
        work = [asyncio.create_task(each) for each in (self.slurm.run(), self.fleet.report(), self.supervise())]
        self.start_controller()
        if watchdog:
            self.start_watchdog()
        yield
        for task in work:
            task.cancel()
        for error in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(error, Exception):
                trace = "".join(traceback.format_exception(error))
                self.model.broken(Promise.NO_BUG, "", f"the world itself failed: {trace}")

    def start_controller(self) -> None:
        """Start it as systemd would, unless it runs."""
        if self.process.alive and not self.process.ended:
            return
        dead = self.process
        self._dead.append(dead)
        self.process = Process("controller")
        self.process.succeed(dead)
        self.process.on_death(self._controller_died)
        self.process.start(self._run_controller(self.process))
        if self.process.main is not None:
            self.process.main.add_done_callback(lambda _: self._gone.set())

    async def supervise(self) -> None:
        """Restart the controller whenever it has died or ended, as systemd does; never returns."""
        while True:
            await self._gone.wait()
            await asyncio.sleep(max(self._restart_at_s - self.clock.monotonic(), 0.25))
            if self.clock.monotonic() >= self._restart_at_s:
                self._gone.clear()
                self.note_exit()
                self.start_controller()

    def at_await(self, awaits: int, happen: Callable[[], None]) -> None:
        """Call `happen` when the controller has resumed so many more awaits; later, if it is idle or away."""
        timer: list[asyncio.TimerHandle] = []

        def now() -> None:
            if not timer[0].cancelled():
                timer[0].cancel()
                happen()

        timer.append(asyncio.get_running_loop().call_later(_REST_S, now))
        self.process.at_await(awaits, now)

    def note_exit(self) -> None:
        """Remember the error with which the controller ended, if it did."""
        main = self.process.main
        if not self.process.ended or main is None:
            return
        if main.cancelled():
            self.exits.append(asyncio.CancelledError("nothing had asked it to end"))
        elif (error := main.exception()) is not None:
            self.exits.append(error)

    def restart_in(self, seconds: float) -> None:
        """Do not restart a controller that has ended before `seconds` from now."""
        self._restart_at_s = self.clock.monotonic() + seconds

    def limit_journal(self, *, full: bool) -> bool:
        """Fill the disk that holds the controller's journal, or free it again. A newly started process has no limit.

        Returns whether the journal is open.
        """
        if (journal := self._open_journal()) is None:
            return False
        limit(journal, full=full)
        return True

    def slow_journal(self, by_s: float) -> bool:
        """Let each write of the journal take so long, in this controller and in those that are started; 0: as usual.

        Returns whether the journal is open.
        """
        self._write_s = by_s
        if (journal := self._open_journal()) is None:
            return False
        stand_still_at_writes(journal, self.process, by_s)
        return True

    def took_effect(self, fault: str, times: int = 1) -> None:
        """Count a fault that has taken effect."""
        self.effects[fault] += times

    def _open_journal(self) -> Journal | None:
        there = self.process.alive and not self.process.ended
        return next(iter(self.process.resources), None) if there else None

    def start_watchdog(self) -> None:
        """Start it as its timer would, unless it runs."""
        if self.watchdog.main is not None and self.watchdog.alive and not self.watchdog.ended:
            return
        self._dead.append(self.watchdog)
        self.watchdog = Process("watchdog")
        self.watchdog.on_death(lambda: self._end_turn("watchdog"))
        self.watchdog.start(self._run_watchdog())

    def watchdog_died(self) -> None:
        """End the turn of the watchdog that was killed, and start another one."""
        self._end_turn("watchdog")
        self.start_watchdog()

    async def _run_controller(self, process: Process) -> None:
        async with AsyncExitStack() as stack:
            journal = Journal(self.settings.journal_path)
            stack.callback(journal.close)
            wake = WakePipe(self.settings.wake_path)
            stack.callback(wake.close)
            process.resources = (journal, wake)
            stand_still_at_writes(journal, process, self._write_s)
            decider = Decider(
                StoryEndpoint(self.servers[self.current_policy]),
                make_policy("fifo-skip"),
                self.settings.policy_deadline_s,
                self.clock,
            )
            turn = controller_turn(self.settings.runtime_dir, self.settings.slurm_timeout_s, self.clock)
            client: Any = StoryClient(self, turn)
            events = EventLog(self.clock, kept=self.events_kept)
            # The pauses before tasks are begun again are the same each time that a story is played.
            tasks = Tasks(monotonic=self.clock.monotonic, now=self.clock.now, rng=random.Random(0))
            controller = Controller(
                self.settings,
                client,
                decider,
                journal,
                self.clock,
                connect=self._connect,
                turn=turn,
                events=events,
                tasks=tasks,
            )
            reports: asyncio.Queue[Callable[[], Awaitable[None] | None]] = asyncio.Queue()
            await stack.enter_async_context(run_preemptions(controller.preemptions, None, controller.tasks))
            await stack.enter_async_context(controller.tasks.running("reports", lambda: _take_in(reports)))
            controller.preemptions.serve(self.fleet)
            manager = controller.preemptions
            if self.services is None:
                take, greet, part = _screened(controller), manager.on_connected, None
            else:
                service = await self.services.start(stack, controller)
                take, greet, part = self.services.ways(service, manager.on_connected)
            self.fleet.attach(
                lambda node, report: reports.put_nowait(partial(take, node, _copy(report))),
                lambda node: reports.put_nowait(partial(greet, node)),
                part,
            )
            stack.callback(self.fleet.detach)
            self.controller = controller
            if self.checks_answers:
                controller.listeners.append(answers_of(controller))
            await controller.run(wake, Notifier({}))

    def _controller_died(self) -> None:
        """Close the files and locks of the killed controller, as the kernel does for a killed process."""
        self._gone.set()
        self._end_turn("controller")
        self.fleet.detach()
        if self.services is not None:
            self.services.end()
        self.controller = None
        if self.process.resources:
            journal, wake = self.process.resources
            with suppress(Exception):
                journal._file.db.close()
                if journal._file._lock is not None:
                    journal._file._lock()
            wake.close()
            wake._fds.clear()  # the descriptors may belong to other files when Python closes the rest of the process
        self._close_wake()

    def _end_turn(self, process: str) -> None:
        """Remove the turn of a killed process: its process id is no longer one, but here all processes have the same."""
        (self.settings.runtime_dir / f"{process}.turn").unlink(missing_ok=True)

    async def _run_watchdog(self) -> None:
        while True:
            await asyncio.sleep(self.watchdog_every_s)
            turn = watchdog_turn(self.settings.runtime_dir, self.settings.slurm_timeout_s, self.clock)
            client: Any = StoryClient(self, turn)
            watchdog = Watchdog(
                client,
                self.settings.lease_path,
                lambda: read_originals(self.settings.journal_path),
                self.clock,
                confirm_s=3.0,
                turn=turn,
                holds=self.holds,
                placed=lambda: read_placed(self.settings.journal_path),
            )
            try:
                await watchdog.check()
            except SlurmError:
                continue
            except Exception as error:  # noqa: BLE001 - it is reported
                self.model.broken(Promise.NO_BUG, "", f"the watchdog's look failed: {error!r}")

    def _connect(self, address: str) -> PolicyEndpoint:
        name = address.removeprefix("story:")
        if name not in self.servers:
            raise PolicyUnavailableError(f"{address}: unreachable")
        return StoryEndpoint(self.servers[name])

    # --- what Slurm does

    def _lease(self) -> Lease | None:
        return read_lease(self.settings.lease_path)

    @property
    def lease_is_fresh(self) -> bool:
        """True while Slurm's plugin considers the controller alive."""
        return not is_stale(self._lease(), self.slurm_clock.now())

    def _wake(self, line: str) -> None:
        if self._wake_fd is None:
            with suppress(OSError):
                self._wake_fd = os.open(self.settings.wake_path, os.O_WRONLY | os.O_NONBLOCK)
        if self._wake_fd is not None:
            try:
                os.write(self._wake_fd, f"{line}\n".encode())
            except OSError:
                self._close_wake()

    def _close_wake(self) -> None:
        if self._wake_fd is not None:
            os.close(self._wake_fd)
            self._wake_fd = None

    def _account(self, what: str, job: Job) -> None:
        self.model.account(what, job, self._ending() if what == "START" and job.submission.throttle else ())
        if what == "START":
            expected = self.model.jobs.get(job.job_id)
            if expected is not None and expected.spec.trains:
                self.fleet.started(job)
                job.saved_work_s = self.fleet.saved_work_s(job.job_id)

    def _ending(self) -> set[str]:
        """Return the jobs that have ended and still occupy their nodes: they do not count against the throttle of their array."""
        records = [self.find(job_id) for job_id, job in self.model.jobs.items() if job.running]
        return {record.job_id for record in records if record is not None and record.phase is Phase.COMPLETING}

    # --- what users and operators see

    def find(self, job_id: str) -> Job | None:
        """slurmctld's record."""
        with suppress(Exception):
            return self.slurm.job(job_id)
        return None

    def snapshot_job(self, job_id: str) -> SlurmJob | None:
        """Return the job in the controller's last snapshot."""
        last: SlurmSnapshot | None = None if self.controller is None else self.controller.newest_snapshot
        if last is None:
            return None
        found = [job for job in last.jobs if job.key.job_id == job_id]
        return max(found, key=lambda job: job.key.submit_time_s, default=None)

    def submit(self, spec: JobSpec) -> None:
        """sbatch. Raises SlurmError."""
        keys = self.slurm.submit_all(submission_of(spec, self.ids, self.slurm_clock.now(), self.story.partition))
        after = [(kind, job_id) for kind, label in spec.after for job_id in self.jobs_of(label)]
        self.ids[spec.label] = [key.job_id for key in keys]
        for key in keys:
            self.model.submitted(key.job_id, spec, after)

    def jobs_of(self, label: int) -> list[str]:
        """Return the ids of the jobs of a submission that the model knows."""
        return [job_id for job_id in self.ids.get(label, ()) if job_id in self.model.jobs]

    def named_by_dependencies_on(self, label: int) -> list[str]:
        """Return the ids of the jobs that a dependency on a submission names: its own jobs, and one with the number of its array.

        A slurmctld that has lost jobs issues the number of an array that has ended again.
        """
        jobs = self.jobs_of(label)
        numbers = dict.fromkeys(job_id.split("_")[0] for job_id in jobs)
        return jobs + [number for number in numbers if number in self.model.jobs and number not in jobs]


def _copy(report: agent_pb2.AgentReport) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport.FromString(report.SerializeToString())


def _screened(controller: Controller) -> Callable[[str, agent_pb2.AgentReport], None]:
    """Return the way of a report to the preemptions: it is checked before, as the server of agents does."""
    screen = ReportScreen(Allocations(lambda: controller.newest_snapshot), controller.clock.monotonic)

    def take(node: str, report: agent_pb2.AgentReport) -> None:
        screen.screen(Arrival(node, "run", report, controller.clock.now()))
        controller.preemptions.on_report(node, report)

    return take


async def _take_in(reports: asyncio.Queue[Callable[[], Awaitable[None] | None]]) -> None:
    while True:
        if (more := (await reports.get())()) is not None:
            await more
