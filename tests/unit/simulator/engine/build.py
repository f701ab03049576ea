"""Helpers for tests of the engine: small traces, runs, outcomes of jobs, and audits of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from policies.api import Decision, Policy, PolicySpec, load_policy
from policies.model import ClusterState, Placement
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.kernel.log import FinishLog
from simulator.slowdown.api import Resident
from simulator.traces.trace import NS_PER_S, Trace
from tests.reference import Job, Result
from tests.reference.policies import FIRST_LEVEL

FREE = Settings(preempt_cost_s=0.0)
RECORDED = Settings(preempt_cost_s=0.0, record=True)
BASELINES = (
    "fifo",
    "fifo-skip",
    "sjf",
    "fewest-gpus",
    "backfill",
    "srtf",
    "srtf-count",
    "srsf",
    "las",
    "las-count",
    "tiresias",
    "las-levels",
)
WITH_ROUNDS = ("las", "las-count", "las-levels", "tiresias")
ANYWHERE_ALREADY = ("srtf-count", "las-count")

Outcome = tuple[int, int, int, int, dict[int, int]]
"""First start, finish, service (ns), stops, and its last placement."""


def baseline(name: str, *, anywhere: bool = False, round_s: float = 300.0) -> Policy:
    """The installed policy of that name."""
    options: dict[str, object] = {"round_s": round_s} if name in WITH_ROUNDS else {}
    if anywhere and name not in ANYWHERE_ALREADY:
        options["layout"] = "anywhere"
    if name == "las-levels":
        return load_policy("las", options | {"first_level_gpu_s": FIRST_LEVEL})
    return load_policy(name, options)


class Asked:
    """A policy without its rule: the engine has to ask it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.spec = policy.spec

    def decide(self, state: ClusterState) -> Decision:
        return self._policy.decide(state)


class Does:
    """A policy that is one function."""

    def __init__(self, decide: Callable[[ClusterState], Decision], **spec: object) -> None:
        self._decide = decide
        self.spec = PolicySpec(**({"name": "does", "source": "a test", "preempts": True} | spec))  # type: ignore[arg-type]

    def decide(self, state: ClusterState) -> Decision:
        return self._decide(state)


class Sharing:
    """A slowdown model: a job that shares a node with k others runs at `base` to the power of k."""

    only_between_nodes = False
    needs_gpus = False

    def __init__(self, base: float = 0.7) -> None:
        self._base = base
        self._nodes: dict[int, tuple[int, ...]] = {}
        self._factors: dict[int, float] = {}

    def enter(self, resident: Resident) -> None:
        assert resident.job not in self._nodes
        self._nodes[resident.job] = tuple(resident.nodes)

    def leave(self, job: int) -> None:
        del self._nodes[job]
        self._factors.pop(job, None)

    def changed(self) -> list[int]:
        now = {job: self._worked_out(job) for job in self._nodes}
        before, self._factors = self._factors, now
        return sorted(job for job in now if before.get(job) != now[job])

    def _worked_out(self, job: int) -> float:
        mine = set(self._nodes[job])
        others = sum(1 for other, nodes in self._nodes.items() if other != job and mine & set(nodes))
        return self._base**others

    def factor(self, job: int) -> float:
        return self._factors[job]

    def fork(self) -> Sharing:
        twin = Sharing(self._base)
        twin._nodes = dict(self._nodes)
        twin._factors = dict(self._factors)
        return twin


def trace_of(*rows: Sequence[float], **columns: object) -> Trace:
    """Jobs j0, j1, ... from (submit in s, GPUs, duration in s)."""
    submit = [round(row[0] * NS_PER_S) for row in rows]
    duration = [round(row[2] * NS_PER_S) for row in rows]
    ids = [f"j{row}" for row in range(len(rows))]
    return Trace.of("test", ids, submit, [int(row[1]) for row in rows], duration, **columns)  # type: ignore[arg-type]


def trace_like(jobs: Sequence[Job]) -> Trace:
    """The reference's jobs as a trace."""
    return Trace.of(
        "reference",
        [job.id for job in jobs],
        [exact_ns(job.submit) for job in jobs],
        [job.gpus for job in jobs],
        [exact_ns(job.duration) for job in jobs],
        preemptible=[job.preemptible for job in jobs],
    )


def exact_ns(seconds: Fraction | int) -> int:
    ns = Fraction(seconds) * NS_PER_S
    assert ns.denominator == 1
    return ns.numerator


def ran(trace: Trace, cluster: str, policy: Policy, settings: Settings = FREE, **more: object) -> Simulation:
    """A run to its end."""
    simulation = Simulation(trace, parse_cluster(cluster), policy, settings, **more)  # type: ignore[arg-type]
    simulation.run()
    return simulation


def logs(log: FinishLog) -> list[FinishLog]:
    """The log and those it was forked from, the oldest first."""
    chain = [log]
    while chain[0].prefix is not None:
        chain.insert(0, chain[0].prefix)
    return chain


def outcomes(simulation: Simulation) -> dict[str, Outcome]:
    """Outcomes of the finished jobs, including those that finished before a fork."""
    found: dict[str, Outcome] = {}
    chain = logs(simulation.finished)
    lengths = [later.prefix_length for later in chain[1:]] + [len(chain[-1].index)]
    for log, length in zip(chain, lengths, strict=True):
        for place in range(length):
            job = simulation.trace.job_ids[log.index[place]]
            begin, end = log.offset[place], log.offset[place + 1]
            occupied = dict(zip(log.nodes[begin:end], log.counts[begin:end], strict=True))
            assert job not in found, f"{job} has finished twice"
            found[job] = (log.first_start[place], log.finish[place], log.service[place], log.stops[place], occupied)
    return found


def expected(results: dict[str, Result]) -> dict[str, Outcome]:
    """Return the outcomes of the reference's results."""
    return {
        job: (
            exact_ns(result.first_start),
            exact_ns(result.finish),
            exact_ns(result.service),
            result.preemptions,
            dict(result.last_nodes),
        )
        for job, result in results.items()
    }


def spans_s(simulation: Simulation) -> dict[str, tuple[float, float]]:
    """First start and finish of every job that has finished, s."""
    return {job: (each[0] / NS_PER_S, each[1] / NS_PER_S) for job, each in outcomes(simulation).items()}


@dataclass(frozen=True)
class Span:
    """One run of one job."""

    job: int
    start: int
    end: int
    occupied: dict[int, int]


def spans(simulation: Simulation) -> list[Span]:
    """Every run that has ended, in the order in which they did."""
    log = simulation.loop.spans
    assert log is not None
    return [
        Span(
            log.index[place],
            log.start[place],
            log.end[place],
            dict(
                zip(
                    log.nodes[log.offset[place] : log.offset[place + 1]],
                    log.counts[log.offset[place] : log.offset[place + 1]],
                    strict=True,
                )
            ),
        )
        for place in range(len(log.index))
    ]


def audit_gpus(simulation: Simulation) -> None:
    """Check that no GPU is used twice at any instant."""
    events: dict[int, list[tuple[int, int, int]]] = {}
    for span in spans(simulation):
        for node, gpus in span.occupied.items():
            assert gpus > 0
            events.setdefault(node, []).extend(((span.start, 1, gpus), (span.end, 0, -gpus)))
    for node, changes in events.items():
        occupied = 0
        for _, _, change in sorted(changes):  # what ends at an instant ends before what begins there
            occupied += change
            assert 0 <= occupied <= simulation.cluster.gpus[node], f"node {node} gives {occupied} GPUs"
        assert occupied == 0


def audit_jobs(simulation: Simulation) -> None:
    """Check that gangs run whole, one run at a time, and that service, overhead, work and waiting add up."""
    trace, log = simulation.trace, simulation.finished
    by_job: dict[int, list[Span]] = {}
    for span in spans(simulation):
        by_job.setdefault(span.job, []).append(span)
    for place, job in enumerate(log.index):
        runs = by_job[job]
        assert all(sum(run.occupied.values()) == trace.num_gpus[job] for run in runs)
        assert all(before.end <= after.start for before, after in pairwise(runs))
        assert runs[0].start == log.first_start[place] >= trace.submit_ns[job]
        assert runs[-1].end == log.finish[place]
        assert log.service[place] == sum(run.end - run.start for run in runs)
        assert log.attained[place] == log.service[place] * trace.num_gpus[job]
        assert log.wait[place] == log.finish[place] - trace.submit_ns[job] - log.service[place]


def allocation(**nodes: dict[int, int]) -> Decision:
    """A decision by row: `r0={0: 4}` gives the job of row 0 four GPUs of node 0."""
    return Decision({int(row[1:]): Placement.of(occupied) for row, occupied in nodes.items()})
