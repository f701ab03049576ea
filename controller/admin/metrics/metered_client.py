"""Metrics of the calls to Slurm: duration and failures by verb."""

from __future__ import annotations

from collections import Counter as Counting
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import Counter, Histogram

from controller.base.clock import Clock
from controller.base.errors import SlurmError, SlurmUnavailableError
from controller.slurm.client import Failures, Pin, SlurmClient, SlurmFacts
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob
from controller.slurm.model.shares import Shares
from policies.serving.runtime.tasks.supervise import is_own_end

T = TypeVar("T")

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histograms of latencies, in seconds."""


_READINGS = ("facts", "topology", "shares", "snapshot", "unregistered", "read")
_CHANGES = ("hold", "unmark", "mark", "pin", "unpin", "release", "signal", "requeue_hold", "set_begin_time")


@dataclass(frozen=True, slots=True)
class CallCount:
    """Calls of one verb since the start."""

    verb: str
    calls: int
    total_s: float
    """Time until the answers, all together, seconds."""
    failed: int
    """Calls without an answer that was understood, and jobs for which a change was refused."""


class MeteredClient:
    """A SlurmClient that forwards every call and measures its duration. Invariant: answers and errors are forwarded unchanged."""

    def __init__(self, inner: SlurmClient, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.latency = Histogram(
            "headway_slurm_call_seconds", "Time that Slurm took to answer", ["verb"], registry=None, buckets=LATENCY_S
        )
        self.errors = Counter(
            "headway_slurm_errors",
            "Calls without an answer, and jobs for which a call failed",
            ["verb", "kind"],
            registry=None,
        )
        # With 0 from the start, because Prometheus does not see the increase of a series that begins with its first error.
        for verb in (*_READINGS, *_CHANGES):
            for kind in ("unavailable", "reply", "error", *(("refused", "gone") if verb in _CHANGES else ())):
                self.errors.labels(verb, kind)

    def calls(self) -> list[CallCount]:
        """Return the verbs that were called, the one that took most time first."""
        failed: Counting[str] = Counting()
        for family in self.errors.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    failed[sample.labels["verb"]] += int(sample.value)
        counted: dict[str, dict[str, float]] = {}
        for family in self.latency.collect():
            for sample in family.samples:
                part = sample.name.rpartition("_")[2]
                if part in {"count", "sum"}:
                    counted.setdefault(sample.labels["verb"], {})[part] = sample.value
        found = [CallCount(verb, int(one["count"]), one["sum"], failed[verb]) for verb, one in counted.items()]
        return sorted((one for one in found if one.calls), key=lambda one: -one.total_s)

    async def close(self) -> None:
        """End the processes of the client."""
        await self._inner.close()

    async def facts(self) -> SlurmFacts:
        """Return version, cluster name and settings."""
        return await self._timed("facts", self._inner.facts())

    async def topology(self) -> str:
        """Return what Slurm shows of its topology."""
        return await self._timed("topology", self._inner.topology())

    async def shares(self, *, associations: bool = False) -> Shares:
        """Return the fair shares of users and the priorities of QOS."""
        return await self._timed("shares", self._inner.shares(associations=associations))

    async def snapshot(self) -> SlurmSnapshot:
        """Read the whole cluster."""
        return await self._timed("snapshot", self._inner.snapshot())

    async def unregistered(self, nodes: Sequence[str]) -> frozenset[str]:
        """Return the nodes that have not registered with slurmctld."""
        return await self._timed("unregistered", self._inner.unregistered(nodes))

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read only these jobs."""
        return await self._timed("read", self._inner.read(keys))

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold the jobs, and mark them as held by Headway."""
        return await self._change("hold", self._inner.hold(keys))

    async def unmark(
        self, keys: Sequence[JobKey], mark: str, instead: str = "", *, unless_held: bool = False
    ) -> Failures:
        """Remove a token from the admin comment, and add another one."""
        return await self._change("unmark", self._inner.unmark(keys, mark, instead, unless_held=unless_held))

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a token to the admin comment."""
        return await self._change("mark", self._inner.mark(keys, mark))

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes."""
        return await self._change("pin", self._inner.pin(pins))

    def can_bind_gpus(self, pin: Pin) -> bool:
        """Return whether Slurm can be told which GPUs this job gets."""
        return self._inner.can_bind_gpus(pin)

    def stays_bound(self, key: JobKey, original: ResourceRequest) -> bool:
        """Return whether Slurm keeps the job bound to GPUs of certain indices."""
        return self._inner.stays_bound(key, original)

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back."""
        return await self._change("unpin", self._inner.unpin(originals))

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Release the jobs from their hold."""
        return await self._change("release", self._inner.release(keys))

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal."""
        return await self._change("signal", self._inner.signal(keys, signal))

    async def requeue_hold(self, keys: Sequence[JobKey], *, paused: Collection[JobKey] = ()) -> Failures:
        """Stop the jobs and put them back into the queue, held."""
        return await self._change("requeue_hold", self._inner.requeue_hold(keys, paused=paused))

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Set the earliest start; None: no earliest start."""
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
        except BaseException as error:
            if not is_own_end(error):
                self.errors.labels(verb, "error").inc()  # a defect of Headway's own
            raise
        finally:
            self.latency.labels(verb).observe(self._clock.monotonic() - begun_s)
