"""Computes throughputs of whole jobs, window by window, from the samples of single nodes, with the neighbours of each job. Pure.

Each agent of a job reports how many steps the slowest rank on its node has made, and when the last one ended. Two such samples in
one window give an exact rate, even if samples between them were lost. Under data parallelism all ranks step together, so the
job's rate is that of its slowest node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nodeagent.wire.bounds import MAX_STEPS_PER_S

NS = 1e-9
COVERED = 0.8
"""A job must be seen over this share of a window to count as present for the whole window."""
_CLOCKS_S = 5.0
"""Maximum difference between Slurm's clock and a node's, in seconds; a requeued job is away for longer."""

Links = Callable[[Collection[str]], Collection[str]]
"""Returns the links and hosts that a job on these nodes uses; jobs with a common one are neighbours."""


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """One run of one job: Slurm's numeric id, and how often it was requeued before."""

    job_id: int
    restart: int


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """A run as Slurm knows it."""

    run: RunKey
    start_s: float
    """Start of the run on Slurm's clock, in whole seconds."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Program and model of a run; together with the shape, the key of profiles."""

    uid: int
    script: str
    signature: str
    """Signature of the model; empty when not known."""
    batch_size: int | None = None
    """Examples per rank and step; None when not known."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One job as one node saw it at one moment. Times are on the controller's clock, except those in `_ns`."""

    time_s: float
    node: str
    job_id: int
    claimed_restart: int
    """Restart count that the job claims. It may be inherited or false, so it counts only when Slurm has named no run."""
    trained: Trained
    num_ranks: int
    """Number of ranks on that node that have made a step."""
    world_size: int | None
    gpus: int | None
    """Number of GPUs that the job occupies there; None when not known."""
    idle_gpus: int | None
    sockets: int | None
    """Number of NUMA nodes of its GPUs there; None when not known."""
    steps: int | None
    last_step_ns: int | None
    """End of the last step on the node's CLOCK_MONOTONIC."""
    monotonic_ns: int
    """Time of the sample on that clock."""
    first_seen_ns: int | None = None
    """Time at which the agent first saw the program that makes these steps, on that clock."""
    gpu_model: str = ""
    """Model of the GPUs that the job occupies there; empty: none, or not known."""
    several: bool = False
    """True when two processes there have the same rank, so that more than one program trains."""

    @property
    def first_seen_s(self) -> float:
        """Time at which the agent first saw the program, on the controller's clock."""
        seen_ns = self.monotonic_ns if self.first_seen_ns is None else self.first_seen_ns
        return self.time_s - (self.monotonic_ns - seen_ns) * NS


@dataclass(frozen=True, slots=True, order=True)
class RunShape:
    """Number of GPUs (ranks, when GPUs are not known) and nodes of a run."""

    gpus: int
    nodes: int
    gpu_model: str = ""
    """GPU model in the driver's words; several are joined by " + "; empty: not known, or the job trains on CPUs."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A job that shared a link or a host in a window."""

    run: RunKey
    trained: Trained | None
    """None: the job is present, but reports nothing."""
    shape: RunShape | None
    steps_per_s: float | None
    shares_node: bool | None = None
    """False: it shared only links between nodes; None: not known, because an earlier version stored the window."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput of one run in one window. Invariant: the whole job and all its neighbours were present for the whole window, and
    none of the job's GPUs was throttled or failed in it."""

    start_s: float
    run: RunKey
    trained: Trained
    shape: RunShape
    nodes: tuple[str, ...]
    steps: int
    steps_per_s: float
    idle_gpus: int
    sockets: int | None
    """Number of NUMA nodes of its GPUs, for a job on one node; None on several nodes, or when not known."""
    neighbours: tuple[Neighbour, ...]

    @property
    def alone(self) -> bool:
        """True when no other job shared its links and hosts."""
        return not self.neighbours


@dataclass(frozen=True, slots=True)
class _Seen:
    """One job in one window, on all its nodes."""

    run: RunKey
    trained: Trained
    nodes: tuple[str, ...]
    shape: RunShape | None
    """None: a part of the job was not seen, or its run is not known."""
    covered: bool
    """True when one run was on all its nodes for the whole window."""
    steps: int
    steps_per_s: float | None
    """None: not known, or from more than one program."""
    idle_gpus: int
    sockets: int | None


def own_nodes(nodes: Collection[str]) -> Collection[str]:
    """Return the nodes themselves: the links of a cluster whose switch is never the bottleneck."""
    return nodes


def window_throughputs(
    samples: Iterable[Sample],
    start_s: float,
    length_s: float,
    present: Mapping[str, Collection[int]],
    links: Links = own_nodes,
    runs: Mapping[int, Sequence[SlurmRun]] = MappingProxyType({}),
    impaired: Collection[int] = (),
) -> list[Throughput]:
    """Return the throughputs of jobs in the window that begins at `start_s`.

    `present`: numbers of jobs known to be on each node, whether they report or not; `runs`: runs that Slurm knows, by job. A job is
    left out when one of its nodes is missing, when it made fewer than two steps, when it changed its program, or when it or a
    neighbour came or went in the window: its throughput would be a mixture. Jobs in `impaired` had a GPU that was throttled or
    failed: they are left out too, because their throughput would look like contention, or like their speed alone.
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
        if item.shape is None or item.steps_per_s is None or not whole or item.run.job_id in impaired:
            continue
        here = frozenset(item.nodes)
        neighbours = [
            Neighbour(other.run, other.trained, other.shape, other.steps_per_s, not here.isdisjoint(other.nodes))
            for other in near
        ]
        neighbours += [
            Neighbour(RunKey(job_id, 0), None, None, None, not here.isdisjoint(nodes))
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
    """Return the nodes of each present job that reports nothing."""
    reporting = {item.run.job_id for item in seen}
    silent: dict[int, list[str]] = defaultdict(list)
    for node, jobs in sorted(present.items()):
        for job_id in sorted(set(jobs) - reporting):
            silent[job_id].append(node)
    return silent


def _run_of(sample: Sample, runs: Sequence[SlurmRun]) -> SlurmRun | None:
    """Return the last run that had begun when the agent first saw the program; None: a run before all of these.

    The time decides, not the claim: a job that is submitted by a requeued job inherits its restart count.
    """
    begun = [run for run in runs if run.run.restart == 0 or run.start_s <= sample.first_seen_s + _CLOCKS_S]
    return max(begun, key=lambda run: run.start_s, default=None)


def _is_left_over(sample: Sample, runs: Sequence[SlurmRun]) -> bool:
    """Return whether the sample belongs to an earlier run: a node that the job has left may report it for a while."""
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
    """Return whether a node's samples span the window: with n samples, first and last are at most (n-1)/n of it apart."""
    if len(samples) < 2:
        return False
    span_s = samples[-1].time_s - samples[0].time_s
    return span_s + span_s / (len(samples) - 1) >= COVERED * length_s


def _rate(samples: Sequence[Sample], start_s: float) -> tuple[int, float] | None:
    """Return steps and steps/s between the first and the last step that ended in the window; None for more than one program."""
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
    """Return whether a node saw more than one program. (Nodes of a pipeline may differ: each has a part of the model.)"""
    trained = [sample.trained for sample in samples]
    known = (
        {one.script for one in trained if one.script},
        {one.signature for one in trained if one.signature},
        {one.batch_size for one in trained if one.batch_size is not None},
    )
    return any(sample.several for sample in samples) or any(len(values) > 1 for values in known)


def _trained(newest: Sequence[Sample]) -> Trained:
    """Return what most of the nodes that know the model report."""
    known = [sample.trained for sample in newest if sample.trained.signature] or [sample.trained for sample in newest]
    return max(known, key=known.count)


def _shape(newest: Sequence[Sample]) -> RunShape | None:
    """Return GPUs and nodes; None when a part of the job was not seen, or its size is not known."""
    ranks = sum(sample.num_ranks for sample in newest)
    sizes = {sample.world_size for sample in newest if sample.world_size is not None}
    if ranks == 0 or (sizes and sizes != {ranks}):
        return None
    gpus = [sample.gpus for sample in newest]
    known = [count for count in gpus if count]
    models = sorted({sample.gpu_model for sample in newest if sample.gpu_model})
    return RunShape(sum(known) if len(known) == len(gpus) else ranks, len(newest), " + ".join(models))
