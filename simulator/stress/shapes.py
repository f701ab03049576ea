"""Shapes of workloads, made to find a policy that collapses: what a training may not have had.

Each shape is drawn for a cluster, so that its load and its sizes are relative to the cluster's. Durations are log-normal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.cluster.cluster import Cluster
from simulator.traces.trace import MAX_TIME_S, NS_PER_S, Trace

HOUR_S = 3600.0
USUAL: Mapping[float, float] = {0.0: 0.5, 0.25: 0.2, 0.5: 0.15, 1.0: 0.1, 2.0: 0.05}
"""Share of the jobs by their GPUs, relative to the GPUs of a node; 0 is one GPU."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of workload."""

    says: str
    """Its special property, for lists."""
    cluster: str = ""
    """A cluster of its own, as NxG; empty: the cluster that is asked for."""
    load: float = 0.9
    """Work over capacity, from the first submission to the last."""
    sizes: Mapping[float, float] = field(default_factory=lambda: USUAL)
    of_cluster: bool = False
    """Sizes are relative to the cluster's GPUs instead of a node's."""
    median_s: float = HOUR_S
    spread: float = 1.0
    """Standard deviation of the logarithm of durations."""
    small_last: float = 1.0
    """Factor of the durations of jobs of one GPU."""
    burst: int = 1
    """Jobs that are submitted at once; 0: all of them."""
    elastic: bool = False
    """Jobs may have from one GPU to twice those that they request."""


SHAPES: Mapping[str, Shape] = {
    "usual": Shape(says="log-normal durations, sizes up to two nodes"),
    "idle": Shape(says="hardly any load", load=0.03),
    "idle-days": Shape(says="hardly any load, jobs of days", load=0.03, median_s=48 * HOUR_S),
    "overload": Shape(says="one and a half times the work that can be done", load=1.5),
    "tiny": Shape(says="two nodes of two GPUs", cluster="2x2"),
    "one-gpu": Shape(says="all jobs have one GPU and last an hour", sizes={0.0: 1.0}, spread=0.0),
    "one-node": Shape(says="all jobs have a whole node and last an hour", sizes={1.0: 1.0}, spread=0.0),
    "huge": Shape(
        says="most jobs take a half or the whole of the cluster", sizes={0.25: 0.2, 0.5: 0.5, 1.0: 0.3}, of_cluster=True
    ),
    "small-and-huge": Shape(
        says="one job of twenty takes the whole cluster", sizes={0.0: 0.95, 1.0: 0.05}, of_cluster=True
    ),
    "odd": Shape(says="sizes that leave gaps", sizes={0.375: 0.4, 0.625: 0.3, 0.875: 0.2, 1.375: 0.1}),
    "days": Shape(says="jobs of days", median_s=48 * HOUR_S),
    "seconds": Shape(says="jobs of a minute", median_s=60.0),
    "tails": Shape(says="heavy tails: the longest jobs are the work", median_s=600.0, spread=2.5),
    "bursts": Shape(says="twenty jobs at once", burst=20),
    "at-once": Shape(says="all jobs at once", burst=0),
    "fragments": Shape(
        says="jobs of one GPU that last for days beside short ones of whole nodes",
        sizes={0.0: 0.3, 1.0: 0.7},
        small_last=100.0,
        load=0.4,
    ),
    "elastic": Shape(says="jobs that may have from one GPU to twice what they request", elastic=True),
}
"""All shapes, by name."""


def trace_of(name: str, shape: Shape, cluster: Cluster, jobs: int, seed: int) -> Trace:
    """Draw the workload of that shape."""
    rng = np.random.default_rng((seed, *name.encode()))
    gpus = _sizes(shape, cluster, rng, jobs)
    durations_s = np.clip(shape.median_s * np.exp(shape.spread * rng.normal(size=jobs)), 1.0, MAX_TIME_S / 100)
    durations_s = np.where(gpus == 1, shape.small_last, 1.0) * durations_s
    durations = np.rint(durations_s * NS_PER_S).astype(np.int64)
    submitted = _submissions(shape, float((gpus * durations_s).sum()) / cluster.num_gpus, rng, jobs)
    low, high = (np.ones_like(gpus), np.minimum(2 * gpus, cluster.num_gpus)) if shape.elastic else (gpus, gpus)
    names = [f"{name}-{number}" for number in range(jobs)]
    return Trace.of(name, names, submitted, gpus, durations, min_gpus=low, max_gpus=high)


def _sizes(shape: Shape, cluster: Cluster, rng: np.random.Generator, jobs: int) -> IntColumn:
    whole = cluster.num_gpus if shape.of_cluster else max(cluster.gpus)
    relative, shares = np.array(list(shape.sizes)), np.array(list(shape.sizes.values()))
    drawn = rng.choice(relative, jobs, p=shares / shares.sum())
    gpus: IntColumn = np.clip(np.rint(drawn * whole), 1, cluster.num_gpus).astype(np.int64)
    return gpus


def _submissions(shape: Shape, busy_s: float, rng: np.random.Generator, jobs: int) -> IntColumn:
    """Return the times of submission, ns, over a span in which the cluster could do the work `load` times."""
    if not shape.burst:
        return np.zeros(jobs, dtype=np.int64)
    bursts = -(-jobs // shape.burst)
    gaps: FloatColumn = rng.exponential(size=bursts)
    gaps[0] = 0.0
    at_s = np.cumsum(gaps) / max(gaps.sum(), 1e-9) * busy_s / shape.load
    at_ns: IntColumn = np.rint(np.repeat(at_s, shape.burst)[:jobs] * NS_PER_S).astype(np.int64)
    return at_ns
