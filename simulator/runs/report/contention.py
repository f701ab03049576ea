"""Mean slowdown of jobs of one model while they share a node or a link with jobs of another.

The runs are replayed to the slowdown models in order of time; the slowdown between two changes is weighted by its duration. So the
figures are exact, and not estimated from averages of jobs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from simulator.cluster.topology import Topology
from simulator.results.result import Result, Spans
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite
from simulator.traces.trace import NS_PER_S, Trace

MOST_MODELS = 20
MOST_RUNS = 60_000
OTHERS = "others"
UNNAMED = "not named"


@dataclass(frozen=True)
class Heat:
    """Mean slowdown (1 / speed) of `models[i]` while it shares with `models[j]`; None where they never met."""

    models: tuple[str, ...]
    slowdown: tuple[tuple[float | None, ...], ...]
    hours: tuple[tuple[float, ...], ...]
    """Job hours that they shared."""
    alone: tuple[float | None, ...]
    """Mean slowdown while it shares with no job."""
    runs: int
    """Number of runs that were replayed: the first ones."""


def no_heat(trace: Trace, models: Sequence[SlowdownModel]) -> str:
    """Return the reason why runs of the trace have no slowdowns by pair of models; empty if they have."""
    if not any(trace.model):
        return "The trace does not name models."
    # A record of runs has how many GPUs of each node a job had, not which ones.
    if any(model.needs_gpus for model in models):
        return "Not known: a slowdown model (gpu-links) depends on which GPUs of a node a job has, and that is not recorded."
    return ""


def heat(result: Result, trace: Trace, models: Sequence[SlowdownModel], topology: Topology) -> Heat | None:
    """Return the slowdowns of a recorded run; None if there are none (see `no_heat`). `trace` has the jobs of the result."""
    spans = result.spans
    if spans is None or no_heat(trace, models) or not len(spans):
        return None
    weight: Counter[str] = Counter()
    for name, service in zip(trace.model, result.service_ns.tolist(), strict=True):
        weight[name or UNNAMED] += service
    names = [name for name, _ in weight.most_common(MOST_MODELS)]
    labels = [(name or UNNAMED) if (name or UNNAMED) in names else OTHERS for name in trace.model]
    meter = _Meter(Composite(models), topology, trace, labels)
    runs = min(len(spans), MOST_RUNS)
    for now, starts, run in _events(spans, runs):
        if starts:
            meter.enter(now, run, spans)
        else:
            meter.leave(now, run)
    shown = (*sorted(names), *([OTHERS] if OTHERS in labels else []))
    return Heat(
        shown,
        tuple(tuple(meter.mean(one, other) for other in shown) for one in shown),
        tuple(tuple(meter.time[one, other] / NS_PER_S / 3600 for other in shown) for one in shown),
        tuple(meter.mean(one, "") for one in shown),
        runs,
    )


def _events(spans: Spans, runs: int) -> list[tuple[int, int, int]]:
    """Return (time, 0 end or 1 start, run) of the runs that start first, in the order in which they happen."""
    chosen = np.argsort(spans.start, kind="stable")[:runs]
    chosen = chosen[spans.end[chosen] > spans.start[chosen]]
    starts = zip(spans.start[chosen].tolist(), [1] * len(chosen), chosen.tolist(), strict=True)
    ends = zip(spans.end[chosen].tolist(), [0] * len(chosen), chosen.tolist(), strict=True)
    return sorted([*starts, *ends])


@dataclass(eq=False)
class _Running:
    """A running job, with the time of the last change of its slowdown or its neighbours."""

    label: str
    keys: tuple[tuple[int, int], ...]
    """The nodes and links that it uses: (0, node) and (1, link)."""
    since: int
    slowdown: float = 1.0
    near: Counter[int] = field(default_factory=Counter)
    """Jobs with which it shares, and how many nodes and links."""


class _Meter:
    """Adds up the slowdowns of jobs that share. Invariant: everything before each running job's `since` is counted."""

    def __init__(self, composite: Composite, topology: Topology, trace: Trace, labels: Sequence[str]) -> None:
        self._composite = composite
        self._topology = topology
        self._trace = trace
        self._labels = labels
        self._running: dict[int, _Running] = {}
        self._at: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._entered: dict[int, int] = {}
        """Job of each run that has started and not ended."""
        self.time: Counter[tuple[str, str]] = Counter()
        self._slowed: defaultdict[tuple[str, str], float] = defaultdict(float)

    def mean(self, one: str, other: str) -> float | None:
        """Return the mean slowdown of one beside the other ('' for none)."""
        time = self.time[one, other]
        return self._slowed[one, other] / time if time else None

    def enter(self, now: int, run: int, spans: Spans) -> None:
        """Record that a run starts."""
        job = int(spans.index[run])
        parts = slice(int(spans.offset[run]), int(spans.offset[run + 1]))
        nodes, counts = spans.nodes[parts].tolist(), spans.counts[parts].tolist()
        links = self._topology.ring(nodes) if len(nodes) > 1 else ()
        keys = (*((0, node) for node in nodes), *((1, link) for link in links))
        self._entered[run] = job
        mine = self._running[job] = _Running(self._labels[job], keys, now)
        for key in keys:
            for other in self._at[key]:
                self._count(now, other)
                self._running[other].near[job] += 1
                mine.near[other] += 1
            self._at[key].add(job)
        trace = self._trace
        gpus = int(trace.num_gpus[job])
        batch = batch_per_gpu(int(trace.batch_size[job]), gpus)
        self._composite.enter(Resident(job, trace.model[job], batch, gpus, nodes, counts))
        self._refresh(now)

    def leave(self, now: int, run: int) -> None:
        """Record that a run ends."""
        job = self._entered.pop(run)
        mine = self._running[job]
        for each in (job, *mine.near):
            self._count(now, each)
        for key in mine.keys:
            self._at[key].discard(job)
        for other in mine.near:
            del self._running[other].near[job]
        del self._running[job]
        self._composite.leave(job)
        self._refresh(now)

    def _refresh(self, now: int) -> None:
        for job in self._composite.changed():
            self._count(now, job)
            self._running[job].slowdown = 1 / max(self._composite.speed(job), 1e-9)

    def _count(self, now: int, job: int) -> None:
        """Add the state since the job's last change."""
        mine = self._running[job]
        passed = now - mine.since
        if not passed:
            return
        mine.since = now
        for label in {self._running[other].label for other in mine.near} or {""}:
            self.time[mine.label, label] += passed
            self._slowed[mine.label, label] += passed * mine.slowdown
