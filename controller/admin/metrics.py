"""Prometheus metrics: how fast and by whom decisions are made, how the queue stands, how Slurm answers.

Labels are bounded: verbs, roles, kinds and the one current policy; never jobs, users or nodes. The exporter answers whoever
can reach it, so it listens on loopback; another address has to be written out in full.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter as Tally
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Protocol, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.admin.explain.cycle_view import Scene
from controller.admin.preemption_metrics import PreemptionMetrics
from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, SlurmError, SlurmUnavailableError
from controller.base.lease import read_lease
from controller.contention.measurement import Measuring
from controller.cycle.cycle import CycleResult
from controller.cycle.decide import DeciderCounts
from controller.cycle.health import CycleListener, Health
from controller.observe.role import Role
from controller.preempt.manager import Preempting
from controller.profiles.current import Contention
from controller.profiles.sensitivity import IdealSource
from controller.slurm.client import (
    Failures,
    JobKey,
    Pin,
    ResourceRequest,
    SlurmClient,
    SlurmFacts,
    SlurmJob,
    SlurmSnapshot,
)
from controller.state.ledger import Ledger
from policies.serving.runtime.supervise import Tasks

log = structlog.get_logger(__name__)

T = TypeVar("T")

_OFTEN = 3
_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KINDS = ("policy", "fallback", "none")
_ROLES = (Role.WAITING, Role.STARTING, Role.RUNNING, Role.INELIGIBLE, Role.YIELDED, Role.ADOPT)


class MeasuredDecider(Protocol):
    """What is told of who decides."""

    @property
    def counts(self) -> DeciderCounts:
        """Since the start."""

    @property
    def serving(self) -> bool:
        """Whether the policy server decides."""


class Measured(Protocol):
    """What the metrics read of a controller; `controller.daemon.daemon.Controller` keeps this."""

    @property
    def settings(self) -> ControllerSettings:
        """Its settings."""

    @property
    def client(self) -> SlurmClient:
        """Its way to Slurm; calls are told of when it is a MeteredClient."""

    @property
    def decider(self) -> MeasuredDecider:
        """Who decides."""

    @property
    def ledger(self) -> Ledger:
        """What it remembers."""

    @property
    def health(self) -> Health:
        """How it is."""

    @property
    def last(self) -> CycleResult | None:
        """The last good cycle."""

    @property
    def measuring(self) -> Measuring | None:
        """What agents report; None where they are not served."""

    @property
    def preempting(self) -> Preempting:
        """Preemptions under way."""

    @property
    def tasks(self) -> Tasks:
        """What runs beside the cycles."""

    @property
    def listeners(self) -> list[CycleListener]:
        """Called after every good cycle."""


# --- calls to Slurm


class MeteredClient:
    """A SlurmClient that passes every call on, and times it. Invariant: answers and errors go through unchanged."""

    def __init__(self, inner: SlurmClient, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.latency = Histogram(
            "headway_slurm_call_seconds", "Time that Slurm took to answer", ["verb"], registry=None, buckets=_LATENCY_S
        )
        self.errors = Counter(
            "headway_slurm_errors",
            "Calls without an answer, and jobs that a call failed for",
            ["verb", "kind"],
            registry=None,
        )

    async def facts(self) -> SlurmFacts:
        """Version, cluster name and settings."""
        return await self._timed("facts", self._inner.facts())

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything."""
        return await self._timed("snapshot", self._inner.snapshot())

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs only."""
        return await self._timed("read", self._inner.read(keys))

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold and mark."""
        return await self._change("hold", self._inner.hold(keys))

    async def unmark(self, keys: Sequence[JobKey], mark: str, instead: str = "") -> Failures:
        """Take a token out of the admin comment, and put another one in."""
        return await self._change("unmark", self._inner.unmark(keys, mark, instead))

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a token to the admin comment."""
        return await self._change("mark", self._inner.mark(keys, mark))

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes."""
        return await self._change("pin", self._inner.pin(pins))

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back."""
        return await self._change("unpin", self._inner.unpin(originals))

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Take the hold off."""
        return await self._change("release", self._inner.release(keys))

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal."""
        return await self._change("signal", self._inner.signal(keys, signal))

    async def requeue_hold(self, keys: Sequence[JobKey]) -> Failures:
        """Stop and put back into the queue, held."""
        return await self._change("requeue_hold", self._inner.requeue_hold(keys))

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Not before this time."""
        return await self._change("set_begin_time", self._inner.set_begin_time(keys, begin_time_s))

    async def _change(self, verb: str, call: Awaitable[Failures]) -> Failures:
        failures = await self._timed(verb, call)
        for failure in failures.values():
            kind = "unavailable" if failure.unavailable else "gone" if failure.gone else "refused"
            self.errors.labels(verb, kind).inc()
        return failures

    async def _timed(self, verb: str, call: Awaitable[T]) -> T:
        begun_s = self._clock.monotonic()
        try:
            return await call
        except SlurmUnavailableError:
            self.errors.labels(verb, "unavailable").inc()
            raise
        except SlurmError:
            self.errors.labels(verb, "reply").inc()
            raise
        finally:
            self.latency.labels(verb).observe(self._clock.monotonic() - begun_s)


# --- the controller


class ControllerMetrics(Collector):
    """Counts decisions as cycles end, and reads everything else from the controller when it is scraped."""

    def __init__(self, controller: Measured, registry: CollectorRegistry) -> None:
        self._controller = controller
        self._latency = Histogram(
            "headway_decision_seconds", "Time from a snapshot to a checked plan", ["decider"], registry=registry,
            buckets=_LATENCY_S,
        )  # fmt: skip
        self._decisions = Counter(
            "headway_decisions", "Decisions by who made them: policy, fallback, or none", ["decider"], registry=registry
        )
        self._started = Counter("headway_jobs_placed", "Jobs placed by decisions", registry=registry)
        for kind in _KINDS:
            self._decisions.labels(kind)
        registry.register(self)

    def on_cycle(self, result: CycleResult) -> None:
        """Take in one good cycle."""
        decided = result.decided
        if decided is None:
            if len(result.observation.state.pending):
                self._decisions.labels("none").inc()
            return
        kind = "fallback" if decided.policy.startswith("fallback:") else "policy"
        self._decisions.labels(kind).inc()
        self._latency.labels(kind).observe(max(decided.latency_s, 0.0))
        self._started.inc(len(decided.plan.starts))

    def collect(self) -> Iterable[Metric]:
        """Everything that is read at the time of the scrape. Runs in the exporter's thread, and changes nothing."""
        yield from self._of_decider()
        yield from self._of_health()
        if self._controller.last is not None:
            yield from self._of_cluster(self._controller.last)

    def _of_decider(self) -> Iterator[Metric]:
        decider = self._controller.decider
        yield _counter(
            "headway_policy_rejects", "Decisions of the policy server that were refused", decider.counts.rejects
        )
        yield _gauge(
            "headway_policy_serving", "1 while the policy server decides, 0 while the fallback does", decider.serving
        )
        info = InfoMetricFamily("headway_build", "Version of the controller")
        info.add_metric([], {"version": version("headway-scheduler")})
        yield info

    def _of_health(self) -> Iterator[Metric]:
        health, settings = self._controller.health, self._controller.settings
        yield _gauge("headway_snapshot_read_seconds", "Time that the last reading of Slurm took", health.read_s)
        yield _gauge(
            "headway_last_cycle_timestamp_seconds", "End of the last good cycle, Unix time", health.last_good_s
        )
        yield _gauge("headway_start_timestamp_seconds", "Start of the controller, Unix time", health.started_s)
        yield _counter("headway_cycles", "Good cycles", health.cycles)
        failures = CounterMetricFamily(
            "headway_task_failures", "Failures of background tasks, which are begun again", labels=["task"]
        )
        for task, number in dict(self._controller.tasks.failures).items():
            failures.add_metric([task], number)
        yield failures
        lease = read_lease(settings.lease_path)
        if lease is not None:
            yield _gauge(
                "headway_lease_age_seconds", "Age of the lease that Slurm's plugin reads", time.time() - lease.time_s
            )
        yield _gauge("headway_lease_stale_after_seconds", "Age at which it is stale", settings.stale_after_s)

    def _of_cluster(self, result: CycleResult) -> Iterator[Metric]:
        scene = Scene(result, self._controller.ledger, self._controller.settings.partitions)
        tally = Tally(found.role for _, found in scene.jobs())
        jobs = GaugeMetricFamily("headway_jobs", "Managed jobs by what Headway does with them", labels=["role"])
        for role in _ROLES:
            jobs.add_metric([str(role.value)], tally[role])
        yield jobs
        refusals = list(self._controller.ledger.refusals.values())  # at once: the event loop goes on meanwhile
        often = sum(refusal.count >= _OFTEN for refusal in refusals)
        yield _gauge("headway_jobs_refused_often", f"Jobs that Slurm has refused {_OFTEN} times or more", often)
        nodes = scene.state.nodes
        yield _gauge("headway_gpus_used", "GPUs in use on managed nodes", int(scene.room.used_gpus.sum()))
        yield _gauge("headway_gpus_total", "GPUs of managed nodes", int(nodes.gpus.sum()))
        yield _gauge("headway_nodes_available", "Managed nodes that may start jobs", int(nodes.available.sum()))
        yield _gauge("headway_nodes_total", "Managed nodes", len(nodes))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


# --- agents


_SENSITIVITIES = (0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


class AgentMetrics(Collector):
    """Who reports, and how much running jobs are in each other's way. Labels are gRPC's codes, and sources of ideals."""

    def __init__(self, measuring: Measuring, registry: CollectorRegistry) -> None:
        self._measuring = measuring
        self._sensitivity = Histogram(
            "headway_contention_sensitivity", "Times that jobs were slower than alone, once for each job and window",
            ["source"], registry=registry, buckets=_SENSITIVITIES,
        )  # fmt: skip
        for source in IdealSource:
            self._sensitivity.labels(source.value)
        measuring.listeners.append(self._on_contention)
        registry.register(self)

    def _on_contention(self, found: Contention) -> None:
        if found.sensitivity is not None:
            self._sensitivity.labels(found.source).observe(found.value)

    def collect(self) -> Iterable[Metric]:
        """As of the scrape."""
        agents = self._measuring.agents
        yield _gauge("headway_agents_connected", "Node agents whose stream is open", self._measuring.connected)
        yield _counter("headway_agent_reports", "Reports of agents that were stored", agents.reports)
        refused = CounterMetricFamily(
            "headway_agent_streams_refused",
            "Streams of agents that were refused, or ended for a cause",
            labels=["code"],
        )
        for code, number in dict(agents.refused).items():
            refused.add_metric([code], number)
        yield refused
        left_out = CounterMetricFamily(
            "headway_agent_reports_left_out",
            "Reports of agents that were not used: out of bounds, of a job that runs on other nodes, or not storable",
            labels=["reason"],
        )
        for reason, number in dict(agents.left_out).items():
            left_out.add_metric([reason], number)
        yield left_out


# --- the exporter


def make_registry(controller: Measured) -> CollectorRegistry:
    """A registry of our own with all metrics of that controller; it follows the controller's cycles from now on."""
    registry = CollectorRegistry(auto_describe=False)
    metrics = ControllerMetrics(controller, registry)
    controller.listeners.append(metrics.on_cycle)
    PreemptionMetrics(controller.preempting, registry)
    if controller.measuring is not None:
        AgentMetrics(controller.measuring, registry)
    if isinstance(controller.client, MeteredClient):
        registry.register(controller.client.latency)
        registry.register(controller.client.errors)
    return registry


@contextmanager
def serve_metrics(controller: Measured, address: str) -> Iterator[int]:
    """Serve /metrics at host:port from a thread of its own, until the context ends; gives the port (0: not served).

    An empty address serves nothing, port 0 takes any free one. Raises ConfigurationError when it cannot be listened on.
    """
    if not address:
        yield 0
        return
    host, port = parse_metrics_address(address)
    registry = make_registry(controller)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(
            f'metrics_address: cannot listen on {address}: {error.strerror or error}; give another port, or "" for none'
        ) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5.0)


def parse_metrics_address(address: str) -> tuple[str, int]:
    """(IP address, port). Loopback, or an IP address that is written out. Raises ConfigurationError with the mend."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigurationError(f'metrics_address: {address!r} is no address; give 127.0.0.1:9341, or "" for none')
    if host == "localhost":
        host = "127.0.0.1"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(
            f"metrics_address: {address!r} names no IP address; metrics are readable for whoever reaches them, so an address "
            "beyond loopback has to be written out (for every interface: 0.0.0.0:9341)"
        ) from None
    if not found.is_loopback:
        log.warning("metrics_beyond_loopback", address=address)
    return str(found), int(port)
