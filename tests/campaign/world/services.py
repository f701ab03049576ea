"""The services around the cycles of one controller, as `controller.daemon.assemble` starts them, without sockets and threads.

Reports of agents go through the screen, the queue and the store of profiles, and update the table of nodes. The threshold of
contention, notes on jobs, notifications, metrics and start estimates follow the cycles. Threads' work is done in the event loop,
so that every run of a seed is the same run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from controller.admin.metrics.exporter import make_registry
from controller.admin.report.job_notes import JobNotes
from controller.agents.entry.admission import RefusedError
from controller.agents.node_table import NodeStatus, NodeTable
from controller.agents.reports.allocations import Allocations
from controller.agents.reports.report_screen import ReportScreen
from controller.agents.reports.storage import ReportStorage
from controller.base.clock import Clock
from controller.contention.service import judge_contention
from controller.daemon.daemon import Controller
from controller.forecast.request import Answer, Waits, decode_request
from controller.forecast.service import forecast_starts
from controller.notify.source import NotificationSource
from controller.profiles.current import jobs_by_node, runs_now
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore, StoreSettings
from policies.serving.runtime.tasks.single_thread import Worker
from protos.headway.v1 import agent_pb2

Take = Callable[[str, agent_pb2.AgentReport], Awaitable[None]]

_PRESENT_EVERY_S = 300.0
_SCRAPED_EVERY_S = 3600.0
_PROFILE_ONE_IN = 20
"""Each such report of a job comes with a profile."""


class InlineWorker(Worker):
    """Does the work at once, in the event loop."""

    def __init__(self) -> None:
        """Start no thread."""

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return the work's result. Raises what it raises."""
        return work()

    def end(self, last: Callable[[], object] = lambda: None) -> None:
        """Do the last work."""
        last()


class CannedForecaster:
    """Gives every waiting job the same range, without a process."""

    async def answer(self, request: bytes) -> Answer:
        """Answer an encoded request."""
        pending = decode_request(request).state.pending
        return Answer("", [Waits(int(row), 60.0, 600.0, None, 0, 0) for row in pending])


@dataclass(slots=True)
class _Stream:
    """The parts of an agent's stream that the table of nodes uses."""

    node: str
    run_id: str
    called_s: float
    offset_s: float = 0.0
    other_end: None = None

    def end(self, code: object, reason: str) -> None:
        """The stream ends."""


class AgentsService:
    """Table, screen, queue and store of the agents' reports. It stands for `AgentsServer`, whose streams need sockets."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        allocated: Allocations | None = None,
        keep_days: float = 7.0,
        table: NodeTable | None = None,
        store: Callable[[Path, StoreSettings], ProfileStore] = ProfileStore,
    ) -> None:
        """`path`: the store's file; `keep_days`: how long the store keeps what it has. Tests give a table or store that leaks."""
        self._clock = clock
        self.table = NodeTable(10_000, clock.now) if table is None else table
        self.screen = ReportScreen(allocated, clock.monotonic)
        settings = StoreSettings(window_s=600.0, lag_s=120.0, keep_days=keep_days, keep_receipts_days=keep_days)
        self.store = store(path, settings)
        self._storage = ReportStorage(self.store, self.screen, clock, InlineWorker())
        self.reports = 0
        self.listeners: list[Callable[[str, agent_pb2.AgentReport], None]] = []

    @property
    def nodes(self) -> dict[str, NodeStatus]:
        """Every node whose agent was connected recently."""
        return dict(self.table.nodes)

    async def use_store(self, work: Callable[[ProfileStore], Any]) -> Any:
        """Run `work` on the store."""
        return await self._storage.use(work)

    async def note_present(self, time_s: float, jobs: Any, runs: Any) -> None:
        """Store the jobs that Slurm runs on each node."""
        await self._storage.note_present(time_s, jobs, runs)

    async def enter(self, node: str, run_id: str) -> None:
        """Let the stream of an agent begin; an earlier one of the node ends."""
        topology = agent_pb2.NodeTopology(nics=[agent_pb2.NicDevice(name="eth0", speed_bits_per_s=10**10)])
        hello = agent_pb2.AgentHello(node=node, run_id=run_id, agent_version="1", boot_id="boot", topology=topology)
        await self._storage.highest(hello)
        stream: Any = _Stream(node, run_id, self._clock.monotonic())
        self.table.enter(stream, hello)
        await self._storage.note_node(hello)

    def leave(self, node: str) -> None:
        """Let the stream of the node's agent end."""
        if (stream := self.table.stream_of(node)) is not None:
            self.table.leave(stream)

    async def put(self, node: str, run_id: str, report: agent_pb2.AgentReport) -> None:
        """Store a report, and then call the listeners with it."""
        arrival = Arrival(node, run_id, report, self._clock.now())

        def stored(fresh: bool) -> None:
            if fresh:
                self.reports += 1
                self.table.note_report(arrival)
                for listener in self.listeners:
                    listener(node, report)

        await self._storage.put(arrival, stored)

    def tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the background tasks by name."""
        windows = partial(self._storage.compute_windows_regularly, self.table.forget)
        return {"agents-store": self._storage.store_reports, "agents-windows": windows}


class Agents:
    """The agents' side: runs of each node's agent, and the numbers of their reports. It outlives the controllers.

    Each hour the agent of a node that Slurm never had before connects, reports once, and leaves for ever.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chance = random.Random("headway agents")
        self._runs: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._visitors = 0

    def start(self, node: str) -> str:
        """Start the node's agent. Return the id of its run."""
        self._runs[node] = self._runs.get(node, 0) + 1
        self._numbers[node] = 0
        return self.run_id(node)

    def run_id(self, node: str) -> str:
        """Return the id of the present run."""
        return f"{node}-{self._runs.get(node, 0)}"

    def numbered(self, node: str, report: agent_pb2.AgentReport) -> agent_pb2.AgentReport:
        """Give the report its number, and what a real agent says of a job beside its steps."""
        self._numbers[node] = report.number = self._numbers.get(node, 0) + 1
        if report.WhichOneof("kind") == "job":
            job = report.job
            job.script, job.device = f"train{job.job.job_id % 7}.py", "cuda"
            job.model.signature = f"model{job.job.job_id % 7}"
            job.first_seen_ns = job.first_step_ns or job.monotonic_ns
            job.gpus.index.extend(range(len(job.ranks)))
            if job.HasField("steps"):
                job.last_step_ns = job.monotonic_ns
            job.energy_joules = job.steps * 1000.0
            if self._chance.random() < 0.05:
                job.impaired.add(index=0, causes=["power"])
        return report

    def profile(self, node: str, of: agent_pb2.JobReport) -> agent_pb2.AgentReport | None:
        """Return the profile that comes with a report of a job; None: with this one comes none."""
        if self._chance.randrange(_PROFILE_ONE_IN):
            return None
        profile = agent_pb2.JobProfile(
            job=of.job, script=of.script, model=of.model, world_size=of.world_size, steps=10, step_s=1.0, compute_s=0.7,
            comm_exposed_s=0.2, comm_hidden_s=0.1,
        )  # fmt: skip
        return self.numbered(node, agent_pb2.AgentReport(time_s=self._clock.now(), profile=profile))

    def telemetry(self, node: str) -> agent_pb2.AgentReport:
        """Return the telemetry of a node, without its number."""
        gpus = [agent_pb2.GpuTelemetry(index=index, name="A100", uuid=f"{node}-{index}") for index in range(8)]
        found = agent_pb2.NodeTelemetry(gpus_read=True, gpus=gpus)
        return agent_pb2.AgentReport(time_s=self._clock.now(), telemetry=found)

    async def visit(self, service: AgentsService) -> None:
        """Let agents of new nodes come and leave, one each hour; never returns."""
        while True:
            await asyncio.sleep(3600.0)
            self._visitors += 1
            node = f"visitor{self._visitors}"
            run_id = self.start(node)
            await service.enter(node, run_id)
            await service.put(node, run_id, self.numbered(node, self.telemetry(node)))
            await asyncio.sleep(1.0)
            service.leave(node)
            del self._runs[node], self._numbers[node]


class Services:
    """Starts the services around each controller. Invariant: what a killed controller had open is closed at its death."""

    def __init__(self, clock: Clock) -> None:
        self.agents = Agents(clock)
        self.running: AgentsService | None = None
        """The service of the controller that runs now."""
        self.notified = 0

    async def start(self, stack: AsyncExitStack, controller: Controller) -> AgentsService:
        """Start the services of this controller, until the context ends."""
        clock, tasks = controller.clock, controller.tasks
        service = AgentsService(
            controller.settings.profiles_path, clock, Allocations(lambda: controller.newest_snapshot)
        )
        self.running = service
        stack.callback(self.end)
        service.listeners.append(controller.preemptions.on_report)
        controller.listeners.append(JobNotes(controller.journal.job_notes, controller.preemptions.steps_done).note)
        source = NotificationSource(controller, lambda _: self._note())
        controller.listeners.append(source.on_cycle)
        controller.preemptions.listeners.append(source.on_preemption)
        registry = make_registry(controller)
        background = service.tasks() | {
            "visitors": lambda: self.agents.visit(service),
            "present": lambda: _note_present(controller, service),
            "scrapes": lambda: _scrape(registry),
        }
        for name, work in background.items():
            await stack.enter_async_context(tasks.running(name, work))
        await stack.enter_async_context(judge_contention(controller, 600.0, service, tasks))
        await stack.enter_async_context(forecast_starts(controller, CannedForecaster(), look_every_s=60.0))
        return service

    def ways(
        self, service: AgentsService, greet: Callable[[str], None]
    ) -> tuple[Take, Callable[[str], Awaitable[None]], Callable[[str], None]]:
        """Return what to call with a report of a node's agent, and when an agent connects and leaves."""
        agents = self.agents

        async def take(node: str, report: agent_pb2.AgentReport) -> None:
            run_id = agents.run_id(node)
            await service.put(node, run_id, agents.numbered(node, report))
            if report.WhichOneof("kind") == "job" and (profile := agents.profile(node, report.job)) is not None:
                await service.put(node, run_id, profile)

        async def connect(node: str) -> None:
            try:
                await service.enter(node, agents.start(node))
            except RefusedError:  # the server ends such a call; the agent's other stream, of the same moment, is open
                return
            greet(node)
            await take(node, agents.telemetry(node))

        return take, connect, service.leave

    def end(self) -> None:
        """Close the store, as the kernel does for a killed process."""
        if self.running is not None:
            self.running.store.close()
            self.running = None

    def _note(self) -> None:
        self.notified += 1


async def _note_present(controller: Controller, service: AgentsService) -> None:
    while True:
        await asyncio.sleep(_PRESENT_EVERY_S)
        if (snapshot := controller.newest_snapshot) is not None:
            await service.note_present(controller.clock.now(), jobs_by_node(snapshot), runs_now(snapshot))


async def _scrape(registry: CollectorRegistry) -> None:
    while True:
        await asyncio.sleep(_SCRAPED_EVERY_S)
        generate_latest(registry)
