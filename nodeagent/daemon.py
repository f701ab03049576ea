"""The node agent: signals set flags, one cycle per report interval, and the job socket in the same event loop.

Invariant: nothing that a job, the driver or the controller does stops the cycle. A reading that fails is missing from the
report; a cycle that fails is logged, and the next one begins on time. The watchdog of systemd is served while cycles end.
"""

from __future__ import annotations

import asyncio
import functools
import resource
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from nodeagent.config import AgentSettings
from nodeagent.errors import TelemetryError
from nodeagent.identity.cgroup import JobCgroups
from nodeagent.identity.peer import Identifier
from nodeagent.identity.procfs import ProcFiles
from nodeagent.jobsocket.listener import Listeners
from nodeagent.jobsocket.rate_limit import Limits
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.jobsocket.server import JobSocket
from nodeagent.metrics.textfile import MetricsFile
from nodeagent.saves.coordinator import SaveRequest
from nodeagent.saves.service import SaveService
from nodeagent.telemetry.network import NicCounters
from nodeagent.telemetry.nvml import CHILD, GpuReader, NoGpus, NvmlReader
from nodeagent.telemetry.sampler import Sampler
from nodeagent.telemetry.slurm_jobs import SlurmJobs
from nodeagent.uplink.reporter import Reporter
from nodeagent.wire.report import GpuReading, JobReport, NodeReport
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.supervise import Tasks, is_own_end
from policies.serving.runtime.tasks.task_groups import first_of

log = structlog.get_logger(__name__)

_MAX_DELAY_S = 30.0
"""A cycle may be late by so much before the watchdog of systemd is no longer served."""
_WATCHDOG_S = 5.0
_MAX_PROFILE_STEPS = 1000
_SPARE_FILES = 256


class Clock(Protocol):
    """The two clocks of a report."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, nanoseconds: the jobs of this node use the same clock."""
        ...


class RealClock:
    """The clocks of the machine."""

    def now(self) -> float:
        """See Clock."""
        return time.time()

    def monotonic_ns(self) -> int:
        """See Clock."""
        return time.monotonic_ns()


@dataclass(slots=True)
class AgentHealth:
    """State of the agent's cycles."""

    cycles: int = 0
    failed_cycles: int = 0
    last_end_s: float = 0.0
    """End of the last cycle, failed or not, on the monotonic clock; 0 = none yet."""
    last_error: str = ""


@dataclass(slots=True)
class NodeAgent:
    """The agent of a compute node, made of its parts."""

    settings: AgentSettings
    """The settings file, with the changes of the controller."""
    jobs: JobRegistry
    job_socket: JobSocket
    sampler: Sampler
    save_service: SaveService
    clock: Clock = field(default_factory=RealClock)
    health: AgentHealth = field(default_factory=AgentHealth)
    metrics: MetricsFile = field(default_factory=lambda: MetricsFile(None))
    tasks: Tasks = field(default_factory=Tasks)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _reported_ns: int | None = None

    # ---- commands

    def stop(self) -> None:
        """Stop after the present cycle."""
        self._stop.set()

    def apply_settings(self, *, report_interval_s: float | None = None, profile_steps: int | None = None) -> None:
        """Apply the controller's settings for all agents. Values out of the bounds of AgentSettings are ignored."""
        values = {"report_interval_s": report_interval_s, "profile_steps": profile_steps}
        changes = {name: value for name, value in values.items() if value is not None}
        try:
            self.settings = AgentSettings.model_validate(self.settings.model_dump() | changes)
        except ValueError as error:
            log.warning("settings_ignored", problem=str(error))
            return
        self.job_socket.set_profile_steps(self.settings.profile_steps)

    def request_profile(self, job_id: int, steps: int) -> str:
        """Request a profile window of a job. Return why that failed, or empty: the request went to every rank on this node."""
        if not 0 < steps <= _MAX_PROFILE_STEPS:
            return f"{steps} steps: must be 1 to {_MAX_PROFILE_STEPS}"
        ranks = self.jobs.stepping(job_id)
        if not ranks:
            return f"job {job_id}: none of its processes on this node has made an optimizer step"
        sent = sum(self.job_socket.request_profile(connection, steps) for connection in ranks)
        return "" if sent == len(ranks) else f"job {job_id}: the request reached only {sent} of {len(ranks)} ranks"

    def request_save(self, request: SaveRequest) -> str:
        """Begin a save. Return why that is not possible, or empty: then the reporter receives the outcome."""
        return self.save_service.request_save(request)

    def request_go_on(self, save_id: str, job_id: int, restart: int) -> None:
        """Call a save off, and let the ranks that are paused for it train on."""
        self.save_service.request_go_on(save_id, job_id, restart)

    def give_report(self, job_id: int, restart: int, lines: Sequence[str]) -> None:
        """Give the processes of the job that write a report at their end what the controller knows."""
        for connection in self.jobs.reporting(job_id, restart):
            self.job_socket.give_report(connection, lines)

    # ---- running

    async def run(self, reporter: Reporter, notifier: Notifier) -> None:
        """Run cycles until `stop`. Raises SocketError and TelemetryError when the agent cannot start."""
        _raise_file_limit(self.settings.max_connections + _SPARE_FILES)
        self.job_socket.open()
        report_early = functools.partial(self._report_early, reporter)
        try:
            async with (
                self.tasks.running("reporter", reporter.run, may_end=True),
                self.tasks.running("watchdog", lambda: self._serve_watchdog(notifier)),
                self.tasks.running("saves", lambda: self.save_service.run(reporter.answer, report_early)),
            ):
                try:
                    await self._require_gpus()
                    notifier.ready()
                    while not self._stop.is_set():
                        begun_s = time.monotonic()
                        await self._one_cycle(reporter)
                        await self._pause(self.settings.report_interval_s - (time.monotonic() - begun_s))
                finally:
                    notifier.stopping()
                    self.job_socket.close()
                    self.metrics.remove()
        finally:
            await self.sampler.gpus.close()

    async def _require_gpus(self) -> None:
        if self.settings.gpus != "required":
            return
        await self.sampler.gpus.read()
        if self.sampler.gpus.absent:
            raise TelemetryError(
                f'no GPU can be read: {self.sampler.gpus.absent}; install the NVIDIA driver, or set gpus = "automatic"'
            )

    async def _one_cycle(self, reporter: Reporter) -> None:
        try:
            gpus = await self._read_gpus()
            report = self._measure(gpus)
            reporter.report(report)
            self.metrics.write(report)
        except (Exception, asyncio.CancelledError) as error:
            # A bug must cost a report, not the agent: jobs of this node rely on it.
            if is_own_end(error):
                raise
            log.exception("cycle_failed")
            self.health.failed_cycles += 1
            self.health.last_error = f"{type(error).__name__}: {error}"
        self._sweep()
        self.health.cycles += 1
        self.health.last_end_s = time.monotonic()

    def _sweep(self) -> None:
        """Run also after a failed cycle: a job that makes cycles fail must not keep connections without a hello."""
        try:
            self.job_socket.sweep()
        except Exception:  # a bug must not end the agent
            log.exception("sweep_failed")

    def _report_early(self, reporter: Reporter, rows: tuple[JobReport, ...]) -> None:
        reporter.report_early(self._report(rows, self.clock.monotonic_ns(), interval_s=None))

    async def _read_gpus(self) -> tuple[GpuReading, ...] | None:
        """Read the GPUs; a stop ends the wait, so that a hung driver does not delay it."""
        gpus: tuple[GpuReading, ...] | None = None

        async def read() -> None:
            nonlocal gpus
            gpus = await self.sampler.gpus.read()

        await first_of(read(), self._stop.wait())
        return gpus

    def _measure(self, gpus: tuple[GpuReading, ...] | None) -> NodeReport:
        now_ns = self.clock.monotonic_ns()
        reading = self.sampler.sample(gpus, now_ns)
        self.save_service.take_measurements(reading.jobs)
        before_ns, self._reported_ns = self._reported_ns, now_ns
        report = self._report(reading.jobs, now_ns, None if before_ns is None else (now_ns - before_ns) / 1e9)
        return replace(report, gpus=reading.gpus, nics=reading.nics, lost_gpus=reading.lost_gpus)

    def _report(self, jobs: tuple[JobReport, ...], now_ns: int, interval_s: float | None) -> NodeReport:
        return NodeReport(
            node_name=self.settings.node_name or socket.gethostname().partition(".")[0],
            time_s=self.clock.now(),
            monotonic_ns=now_ns,
            interval_s=interval_s,
            jobs=jobs,
            gpus=None,
            nics=(),
            socket=self.job_socket.counters(),
            failed_tasks=tuple(self.tasks.last.values()),
        )

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stop.wait()

    async def _serve_watchdog(self, notifier: Notifier) -> None:
        """Serve the watchdog of systemd in time, as long as cycles end."""
        period_s = min(_WATCHDOG_S, (notifier.watchdog_s or 2 * _WATCHDOG_S) / 2)
        while True:
            await asyncio.sleep(period_s)
            if time.monotonic() - self.health.last_end_s <= self.settings.report_interval_s + _MAX_DELAY_S:
                notifier.watchdog()


def build_agent(settings: AgentSettings, *, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> NodeAgent:
    """Build the agent of this machine."""
    processes = ProcFiles(proc)
    cgroups = JobCgroups(processes, sys / "fs/cgroup")
    jobs = JobRegistry(settings.throughput_window_s, settings.steps_interval_s)
    limits = Limits(
        settings.max_connections,
        settings.max_connections_per_user,
        settings.frames_per_s,
        settings.frames_burst,
    )
    listeners = Listeners(jobs)
    job_socket = JobSocket(
        settings.job_socket,
        Identifier(processes, settings.identity, sys / "fs/cgroup"),
        listeners,
        limits,
        steps_interval_s=settings.steps_interval_s,
        profile_steps=settings.profile_steps,
    )
    child = (*CHILD, "--gpm") if settings.gpm == "automatic" else CHILD
    gpus: GpuReader = NoGpus() if settings.gpus == "off" else NvmlReader(settings.gpu_deadline_s, child)
    sampler = Sampler(jobs, cgroups, SlurmJobs(cgroups, processes), gpus, NicCounters(settings.nics, sys))
    save_service = SaveService(jobs, job_socket, time.monotonic_ns)
    listeners.add(save_service.saves)
    jobs.subscribe(save_service.job_changed)
    return NodeAgent(settings, jobs, job_socket, sampler, save_service, metrics=MetricsFile(settings.metrics_file))


@contextmanager
def stop_signals(agent: NodeAgent) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop the agent after its present cycle."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, agent.stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _raise_file_limit(wanted: int) -> None:
    """Raise the soft limit on open files: each connection is one, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
