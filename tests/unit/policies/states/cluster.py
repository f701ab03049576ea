"""Cluster states for tests, written row by row; and hypothesis strategies that make random ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from hypothesis import strategies as st

from policies.model import ClusterState, EstimateSource, Jobs, JobState, Nodes, Split


@dataclass(frozen=True)
class Node:
    """One node; a limit of 0 means that there is no limit."""

    gpus: int = 8
    cpus: int = 0
    memory_mib: int = 0
    available: bool = True
    foreign_gpus: int = 0
    foreign_cpus: int = 0
    foreign_memory_mib: int = 0


@dataclass(frozen=True)
class Job:
    """One job; with `occupied` (node -> GPUs) it runs."""

    gpus: int = 1
    split: Split = Split.ANY
    min_nodes: int = 1
    max_nodes: int = 10_000
    occupied: Mapping[int, int] | None = None
    estimate_s: float = math.nan
    service_s: float = 0.0
    attained_gpu_s: float = 0.0
    preemptible: bool = True
    exclusive: bool = False
    cpus_per_gpu: float = 0.0
    memory_mib_per_gpu: float = 0.0
    nodes: frozenset[int] | None = None
    """Nodes that it may use; None: all."""
    sizes: tuple[int, int] | None = None
    """Fewest and most GPUs; None: exactly `gpus`."""
    measured: tuple[float, float, float] | None = None
    """Contention sensitivity, its confidence, steps/s; None: nothing is known."""
    training: tuple[float, float] | None = None
    """Epochs and progress; None: nothing is known."""
    servers: int = 0
    """Parameter servers that it requests."""
    served_by: Mapping[int, int] | None = None
    """Servers by node, of a job that runs."""

    @property
    def gpus_per_node(self) -> int:
        return self.gpus // self.min_nodes if self.split is Split.FIXED else 0


def cluster(nodes: Sequence[Node], jobs: Sequence[Job], *, sequence: int = 1, time_s: float = 1000.0) -> ClusterState:
    """The state with these nodes (n0, n1, ...) and these jobs (100, 101, ..., submitted a second apart)."""
    sets = sorted({job.nodes for job in jobs if job.nodes is not None}, key=sorted)
    occupied = [sorted((job.occupied or {}).items()) for job in jobs]
    entries = [entry for row in occupied for entry in row]
    elastic = any(job.sizes is not None for job in jobs)
    sizes = [job.sizes or (job.gpus, job.gpus) for job in jobs]
    known = any(job.measured is not None for job in jobs)
    measured = list(zip(*(job.measured or (math.nan, 0.0, math.nan) for job in jobs), strict=True))
    trains = any(job.training is not None for job in jobs)
    training = list(zip(*(job.training or (math.nan, math.nan) for job in jobs), strict=True))
    has_servers = any(job.servers for job in jobs)
    served_by = [sorted((job.served_by or {}).items()) for job in jobs]
    servers = [entry for row in served_by for entry in row]
    return ClusterState(
        sequence=sequence,
        time_s=time_s,
        nodes=_nodes(nodes),
        jobs=Jobs(
            ids=tuple(str(100 + row) for row in range(len(jobs))),
            state=_ints([JobState.PENDING if job.occupied is None else JobState.RUNNING for job in jobs]),
            submit_time_s=np.arange(len(jobs), dtype=np.float64),
            start_time_s=_floats([math.nan if job.occupied is None else 500.0 for job in jobs]),
            num_gpus=_ints([job.gpus for job in jobs]),
            split=_ints([job.split for job in jobs]),
            min_nodes=_ints([job.min_nodes for job in jobs]),
            max_nodes=_ints([job.max_nodes for job in jobs]),
            gpus_per_node=_ints([job.gpus_per_node for job in jobs]),
            cpus_per_gpu=_floats([job.cpus_per_gpu for job in jobs]),
            memory_mib_per_gpu=_floats([job.memory_mib_per_gpu for job in jobs]),
            service_s=_floats([job.service_s for job in jobs]),
            attained_gpu_s=_floats([job.attained_gpu_s for job in jobs]),
            duration_estimate_s=_floats([job.estimate_s for job in jobs]),
            duration_spread_s=_floats([math.nan for _ in jobs]),
            estimate_source=_ints(
                [EstimateSource.UNKNOWN if math.isnan(job.estimate_s) else EstimateSource.TRUTH for job in jobs]
            ),
            preemptible=np.array([job.preemptible for job in jobs], dtype=np.bool_),
            exclusive=np.array([job.exclusive for job in jobs], dtype=np.bool_),
            node_set=_ints([-1 if job.nodes is None else sets.index(job.nodes) for job in jobs]),
            user=_ints([0 for _ in jobs]),
            users=("ada",),
            placement_offset=np.cumsum([0, *map(len, occupied)]).astype(np.int64),
            placement_node=_ints([node for node, _ in entries]),
            placement_gpus=_ints([gpus for _, gpus in entries]),
            placement_gpu_mask=np.zeros(len(entries), dtype=np.uint64),
            min_gpus=_ints([low for low, _ in sizes]) if elastic else None,
            max_gpus=_ints([high for _, high in sizes]) if elastic else None,
            contention_sensitivity=_floats(measured[0]) if known else None,
            contention_confidence=_floats(measured[1]) if known else None,
            throughput_steps_per_s=_floats(measured[2]) if known else None,
            epochs=_floats(training[0]) if trains else None,
            progress=_floats(training[1]) if trains else None,
            num_servers=_ints([job.servers for job in jobs]) if has_servers else None,
            server_offset=np.cumsum([0, *map(len, served_by)]).astype(np.int64) if has_servers else None,
            server_node=_ints([node for node, _ in servers]) if has_servers else None,
            server_count=_ints([count for _, count in servers]) if has_servers else None,
        ),
        node_sets=np.array(
            [[node in members for node in range(len(nodes))] for members in sets], dtype=np.bool_
        ).reshape(len(sets), len(nodes)),
    )


def _nodes(nodes: Sequence[Node]) -> Nodes:
    return Nodes(
        names=tuple(f"n{row}" for row in range(len(nodes))),
        gpus=_ints([node.gpus for node in nodes]),
        cpus=_ints([node.cpus for node in nodes]),
        memory_mib=_ints([node.memory_mib for node in nodes]),
        available=np.array([node.available for node in nodes], dtype=np.bool_),
        foreign_gpus=_ints([node.foreign_gpus for node in nodes]),
        foreign_cpus=_ints([node.foreign_cpus for node in nodes]),
        foreign_memory_mib=_ints([node.foreign_memory_mib for node in nodes]),
        rack=_ints([0 for _ in nodes]),
    )


def _ints(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([int(value) for value in values], dtype=np.int64)


def _floats(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)


# Strategies are made once: hypothesis takes longer to make one than to draw from it.
_UP_TO_3 = st.integers(1, 3)
_UP_TO_4 = st.integers(1, 4)
_UP_TO_8 = st.integers(1, 8)
_UP_TO_20 = st.integers(1, 20)
_ONE_IN_4 = st.integers(0, 3)
_ONE_IN_5 = st.integers(0, 4)
_ONE_IN_6 = st.integers(0, 5)
_ONE_IN_7 = st.integers(0, 6)
_YES_OR_NO = st.booleans()
_MAX_NODES = {low: st.integers(low, 6) for low in range(1, 4)}
_SPLITS = st.sampled_from(Split)
_UNIFORM_GPUS = st.sampled_from([2, 4, 8])
_NODE_GPUS = st.sampled_from([0, 2, 4, 4, 8])
_NODE_CPUS = st.sampled_from([0, 8, 16])
_NODE_MEMORY_MIB = st.sampled_from([0, 1000])
_FOREIGN_CPUS = st.integers(0, 4)
_CPUS_PER_GPU = st.sampled_from([0.0, 0.0, 2.0, 2.5])
_MEMORY_MIB_PER_GPU = st.sampled_from([0.0, 0.0, 200.0])
_ESTIMATES_S = st.sampled_from([math.nan, 1.0, 2.0, 2.0, 3.0, 5.0, 8.0])
_SERVICE_S = st.sampled_from([0.0, 0.0, 1.0, 4.0])
_ATTAINED_GPU_S = st.sampled_from([0.0, 0.0, 10.0, 3200.0, 5000.0])
_MEASURED = st.sampled_from([None, None, (1.0, 1.0, 4.0), (2.5, 0.7, math.nan), (math.nan, 0.0, 0.5)])
_TRAINING = st.sampled_from([None, None, (20.0, 0.25), (math.nan, 1.0), (3.0, math.nan)])
_NODE_SETS = {nodes: st.none() | st.frozensets(st.integers(0, nodes - 1)) for nodes in range(1, 9)}
_NODE_ORDERS = {nodes: st.permutations(range(nodes)) for nodes in range(1, 9)}


@st.composite
def node_lists(draw: st.DrawFn, *, uniform: bool = False) -> list[Node]:
    """Up to eight nodes; uniform ones are the plain NxG clusters that the published policies are stated for."""
    count = draw(_UP_TO_8)
    if uniform:
        return [Node(gpus=draw(_UNIFORM_GPUS))] * count
    limited = draw(_YES_OR_NO)
    nodes = []
    for _ in range(count):
        gpus = draw(_NODE_GPUS)
        nodes.append(
            Node(
                gpus=gpus,
                cpus=draw(_NODE_CPUS) if limited else 0,
                memory_mib=draw(_NODE_MEMORY_MIB) if limited else 0,
                available=draw(_ONE_IN_6) > 0,
                foreign_gpus=draw(st.integers(0, gpus)) if draw(_ONE_IN_5) == 0 else 0,
                foreign_cpus=draw(_FOREIGN_CPUS) if limited else 0,
            )
        )
    return nodes


@st.composite
def states(draw: st.DrawFn, *, uniform: bool = False, max_jobs: int = 14) -> ClusterState:
    """A cluster with jobs that run without overcommitting it, and jobs that wait."""
    nodes = draw(node_lists(uniform=uniform))
    free = {row: node.gpus - node.foreign_gpus for row, node in enumerate(nodes)}
    whole = {row for row, node in enumerate(nodes) if free[row] == node.gpus and not node.foreign_cpus}
    cpus = {row: node.cpus - node.foreign_cpus for row, node in enumerate(nodes) if node.cpus}
    memory_mib = {row: node.memory_mib - node.foreign_memory_mib for row, node in enumerate(nodes) if node.memory_mib}
    jobs = []
    for _ in range(draw(st.integers(0, max_jobs))):
        job = draw(_requests(len(nodes), uniform=uniform))
        if draw(_YES_OR_NO):
            job = _run(draw, job, free, whole)
            job = replace(
                job,
                cpus_per_gpu=_what_fits(job, job.cpus_per_gpu, cpus),
                memory_mib_per_gpu=_what_fits(job, job.memory_mib_per_gpu, memory_mib),
            )
        jobs.append(job)
    return cluster(nodes, jobs)


@cache
@st.composite
def _requests(draw: st.DrawFn, num_nodes: int, *, uniform: bool) -> Job:
    if uniform:
        request = Job(gpus=draw(_UP_TO_20))
    else:
        split = draw(_SPLITS)
        low = draw(_UP_TO_3)
        high = draw(_MAX_NODES[low])
        gpus = draw(_UP_TO_4) * low if split is Split.FIXED else draw(_UP_TO_20)
        request = Job(
            gpus=gpus,
            split=split,
            min_nodes=low,
            max_nodes=high,
            exclusive=draw(_ONE_IN_7) == 0,
            cpus_per_gpu=draw(_CPUS_PER_GPU),
            memory_mib_per_gpu=draw(_MEMORY_MIB_PER_GPU),
            nodes=draw(_NODE_SETS[num_nodes]),
        )
    return Job(
        **vars(request)
        | {
            "estimate_s": draw(_ESTIMATES_S),
            "service_s": draw(_SERVICE_S),
            "attained_gpu_s": draw(_ATTAINED_GPU_S),
            "preemptible": draw(_ONE_IN_4) > 0,
            "sizes": (1, 2 * request.gpus) if draw(_YES_OR_NO) else None,
            "measured": draw(_MEASURED),
            "training": draw(_TRAINING),
        }
    )


def _what_fits(job: Job, per_gpu: float, free: dict[int, float]) -> float:
    """Return what a running job has beside each GPU: nothing if its nodes have not that much left. Takes it from `free`."""
    occupied = {node: gpus * per_gpu for node, gpus in (job.occupied or {}).items() if node in free}
    if any(amount > free[node] for node, amount in occupied.items()):
        return 0.0
    for node, amount in occupied.items():
        free[node] -= amount
    return per_gpu


def _run(draw: st.DrawFn, job: Job, free: dict[int, int], whole: set[int]) -> Job:
    """Let the job run on free GPUs, at most as many as it requests; it waits if no GPU is free."""
    occupied: dict[int, int] = {}
    rest = job.gpus
    for node in draw(_NODE_ORDERS[len(free)]):
        room = free[node] if not job.exclusive or node in whole else 0
        share = min(rest, room)
        if share > 0:
            occupied[node] = share
            rest -= share
            free[node] -= free[node] if job.exclusive else share
            whole.discard(node)
    if not occupied:
        return job
    return Job(**vars(job) | {"occupied": occupied, "gpus": sum(occupied.values()), "split": Split.ANY})
