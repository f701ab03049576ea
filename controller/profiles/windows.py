"""From what single nodes saw of jobs to throughputs of whole jobs, window by window, with who was near. Pure.

A job's agents each tell how many steps its slowest rank there has made, and when the last of them ended. Two such sights
in one window give an exact rate, whatever was lost between them. Under data parallelism all ranks go at one pace, so the job's
rate is that of its slowest node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nodeagent.wire.bounds import MAX_STEPS_PER_S

NS = 1e-9
COVERED = 0.8
"""A job counts as there for the whole of a window when it was seen over this share of it."""
_CLOCKS_S = 5.0
"""Slurm's clock and what is known of a node's differ by less; a requeued job is away for longer."""

Links = Callable[[Collection[str]], Collection[str]]
"""The links and hosts that a job on these nodes uses: jobs that have one in common are neighbours."""


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """One run of one job: Slurm's numeric id, and how often it was requeued before."""

    job_id: int
    restart: int


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """A run that Slurm told of."""

    run: RunKey
    start_s: float
    """By Slurm's clock, in whole seconds."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run trains: the key of profiles, with the shape besides."""

    uid: int
    script: str
    signature: str
    """Of the model; empty when not known."""
    batch_size: int | None = None
    """Examples of a rank and step; None: not known."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One job as one node saw it at one moment. Times on the controller's clock, but for those in `_ns`."""

    time_s: float
    node: str
    job_id: int
    claimed_restart: int
    """Which run this is, as the job says, which may inherit it, or lie: of use only where Slurm has told of no run."""
    trained: Trained
    num_ranks: int
    """Ranks that have stepped there."""
    world_size: int | None
    gpus: int | None
    """GPUs that it holds there; None: not known."""
    idle_gpus: int | None
    sockets: int | None
    """NUMA nodes that its GPUs there are spread over; None: not known."""
    steps: int | None
    last_step_ns: int | None
    """CLOCK_MONOTONIC of the node."""
    monotonic_ns: int
    """The moment of the sight on that clock."""
    first_seen_ns: int | None = None
    """When the agent first saw what it counts these steps of."""
    gpu_model: str = ""
    """Of the GPUs that it holds there; empty: none, or not known."""
    several: bool = False
    """Two processes there are of one rank: more than one program trains."""

    @property
    def first_seen_s(self) -> float:
        """On the controller's clock."""
        seen_ns = self.monotonic_ns if self.first_seen_ns is None else self.first_seen_ns
        return self.time_s - (self.monotonic_ns - seen_ns) * NS


@dataclass(frozen=True, slots=True, order=True)
class RunShape:
    """GPUs (where they are not known: ranks) on so many nodes."""

    gpus: int
    nodes: int
    gpu_model: str = ""
    """As the driver calls it; of different ones all, joined by " + "; empty: not known, or it trains on CPUs."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job that shared a link or a host in a window."""

    run: RunKey
    trained: Trained | None
    """None: known to be there, but it reports nothing."""
    shape: RunShape | None
    steps_per_s: float | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """What one run achieved in one window. Invariant: the whole job was seen, and it and all neighbours were there throughout."""

    start_s: float
    run: RunKey
    trained: Trained
    shape: RunShape
    nodes: tuple[str, ...]
    steps: int
    steps_per_s: float
    idle_gpus: int
    sockets: int | None
    """On one node: NUMA nodes that its GPUs are spread over; None on several, or where not known."""
    neighbours: tuple[Neighbour, ...]

    @property
    def alone(self) -> bool:
        """Whether nothing shared its links and hosts."""
        return not self.neighbours


@dataclass(frozen=True, slots=True)
class _Seen:
    """One job in one window, over all nodes."""

    run: RunKey
    trained: Trained
    nodes: tuple[str, ...]
    shape: RunShape | None
    """None: not all of it was seen, or it is not known of which run."""
    covered: bool
    """On all of its nodes, for the whole window, by one run."""
    steps: int
    steps_per_s: float | None
    """None: not known, or of more than one training."""
    idle_gpus: int
    sockets: int | None


def own_nodes(nodes: Collection[str]) -> Collection[str]:
    """The links of a cluster whose switch is never the bottleneck: the nodes themselves, each with its NIC and host."""
    return nodes


def window_throughputs(
    samples: Iterable[Sample],
    start_s: float,
    length_s: float,
    present: Mapping[str, Collection[int]],
    links: Links = own_nodes,
    runs: Mapping[int, Sequence[SlurmRun]] = MappingProxyType({}),
) -> list[Throughput]:
    """What jobs achieved from `start_s` on. `present`: numeric ids of jobs known to be on a node, whether they report or not;
    `runs`: those that Slurm told of, by job.

    Left out are jobs of which a node is missing, those that made no two steps, those that went from one training to another, and
    windows in which the job or a neighbour came or went: what they would tell is a mixture.
    """
    by_job: dict[int, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if start_s <= sample.time_s < start_s + length_s and not _is_left_over(sample, runs.get(sample.job_id, ())):
            by_job[sample.job_id][sample.node].append(sample)
    seen = [_seen(by_node, runs.get(job_id, ()), length_s, start_s) for job_id, by_node in sorted(by_job.items())]
    used = {item.run: frozenset(links(item.nodes)) for item in seen}
    silent = _silent(present, seen)
    found = []
    for item in seen:
        near = [other for other in seen if other is not item and used[other.run] & used[item.run]]
        whole = item.covered and all(other.covered for other in near)
        if item.shape is None or item.steps_per_s is None or not whole:
            continue
        neighbours = [Neighbour(other.run, other.trained, other.shape, other.steps_per_s) for other in near]
        neighbours += [
            Neighbour(RunKey(job_id, 0), None, None, None)
            for job_id, nodes in silent.items()
            if frozenset(links(nodes)) & used[item.run]
        ]
        found.append(
            Throughput(
                start_s=start_s, run=item.run, trained=item.trained, shape=item.shape, nodes=item.nodes, steps=item.steps,
                steps_per_s=item.steps_per_s, idle_gpus=item.idle_gpus, sockets=item.sockets, neighbours=tuple(neighbours),
            )
        )  # fmt: skip
    return found


def _silent(present: Mapping[str, Collection[int]], seen: Sequence[_Seen]) -> dict[int, list[str]]:
    """Nodes by the id of jobs that are there and report nothing."""
    speaking = {item.run.job_id for item in seen}
    silent: dict[int, list[str]] = defaultdict(list)
    for node, jobs in sorted(present.items()):
        for job_id in sorted(set(jobs) - speaking):
            silent[job_id].append(node)
    return silent


def _run_of(sample: Sample, runs: Sequence[SlurmRun]) -> SlurmRun | None:
    """The last that had begun when the agent first saw it; None: one before all of these.

    When, not what the job says: a job that is submitted by a requeued one inherits its count of restarts.
    """
    begun = [run for run in runs if run.run.restart == 0 or run.start_s <= sample.first_seen_s + _CLOCKS_S]
    return max(begun, key=lambda run: run.start_s, default=None)


def _is_left_over(sample: Sample, runs: Sequence[SlurmRun]) -> bool:
    """Whether it is of a run before the one that there was by then: a node that it has left may remember it for a while."""
    its = _run_of(sample, runs)
    return any(run.start_s <= sample.time_s and (its is None or run.start_s > its.start_s) for run in runs)


def _seen(by_node: Mapping[str, Sequence[Sample]], runs: Sequence[SlurmRun], length_s: float, start_s: float) -> _Seen:
    ordered = {node: sorted(samples, key=lambda sample: sample.time_s) for node, samples in sorted(by_node.items())}
    newest = [samples[-1] for samples in ordered.values()]
    rates = [_rate(samples, start_s) for samples in ordered.values()]
    known = [rate for rate in rates if rate is not None]
    found = {_run_of(sample, runs) for samples in ordered.values() for sample in samples}
    run = next(iter(found)) if len(found) == 1 else None
    return _Seen(
        run=RunKey(newest[0].job_id, max(sample.claimed_restart for sample in newest)) if run is None else run.run,
        trained=_trained(newest),
        nodes=tuple(ordered),
        shape=_shape(newest) if run is not None or not runs else None,
        covered=len(found) == 1 and all(_covered(samples, length_s) for samples in ordered.values()),
        steps=min((steps for steps, _ in known), default=0),
        steps_per_s=min(rate for _, rate in known) if len(known) == len(rates) else None,
        idle_gpus=sum(sample.idle_gpus or 0 for sample in newest),
        sockets=newest[0].sockets if len(newest) == 1 else None,
    )


def _covered(samples: Sequence[Sample], length_s: float) -> bool:
    """Whether the sights of a node span the window: with n of them the first and last are (n-1)/n of it apart at most."""
    if len(samples) < 2:
        return False
    span_s = samples[-1].time_s - samples[0].time_s
    return span_s + span_s / (len(samples) - 1) >= COVERED * length_s


def _rate(samples: Sequence[Sample], start_s: float) -> tuple[int, float] | None:
    """Steps and steps/s between the first and the last step that are known to have ended in the window; of one training."""
    if len({(sample.claimed_restart, sample.first_seen_ns) for sample in samples}) > 1 or _is_mixture(samples):
        return None
    ended = [
        (sample.steps, sample.last_step_ns)
        for sample in samples
        if sample.steps is not None
        and sample.last_step_ns is not None
        and sample.time_s - (sample.monotonic_ns - sample.last_step_ns) * NS >= start_s
    ]
    if not ended:
        return None
    (first_steps, first_ns), (last_steps, last_ns) = ended[0], ended[-1]
    if last_steps <= first_steps or last_ns <= first_ns:
        return None
    steps, pace = last_steps - first_steps, (last_steps - first_steps) / ((last_ns - first_ns) * NS)
    return (steps, pace) if pace <= MAX_STEPS_PER_S else None


def _is_mixture(samples: Sequence[Sample]) -> bool:
    """Whether a node saw more than one training. (Nodes may differ: of a pipeline each has its part of the model.)"""
    told = [sample.trained for sample in samples]
    known = (
        {one.script for one in told if one.script},
        {one.signature for one in told if one.signature},
        {one.batch_size for one in told if one.batch_size is not None},
    )
    return any(sample.several for sample in samples) or any(len(values) > 1 for values in known)


def _trained(newest: Sequence[Sample]) -> Trained:
    """What most of its nodes that know the model say."""
    known = [sample.trained for sample in newest if sample.trained.signature] or [sample.trained for sample in newest]
    return max(known, key=known.count)


def _shape(newest: Sequence[Sample]) -> RunShape | None:
    """GPUs and nodes; None where a part of the job was not seen, or it is not known how large it is."""
    ranks = sum(sample.num_ranks for sample in newest)
    sizes = {sample.world_size for sample in newest if sample.world_size is not None}
    if ranks == 0 or (sizes and sizes != {ranks}):
        return None
    gpus = [sample.gpus for sample in newest]
    known = [count for count in gpus if count]
    models = sorted({sample.gpu_model for sample in newest if sample.gpu_model})
    return RunShape(sum(known) if len(known) == len(gpus) else ranks, len(newest), " + ".join(models))
