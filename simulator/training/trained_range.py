"""The range of jobs and clusters of training traces, for the card of the weights."""

from __future__ import annotations

from collections.abc import Sequence

from policies.api import load_policy
from policies.learned.weights.trained_range import (
    DURATION_S,
    GPUS_PER_JOB,
    GPUS_PER_NODE,
    LOAD,
    NODES,
    QUEUE,
    WAIT_S,
    merged,
)
from simulator.cluster.cluster import Cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.traces.load import offered_load
from simulator.traces.trace import NS_PER_S, Trace

SAMPLES = 24
"""Number of training traces from which the range is taken; all of them, if there are fewer."""
RULE = "fifo-skip"
"""Policy whose longest queue and wait are recorded: those of the agent change while it learns."""


def range_of(traces: Sequence[Trace], cluster: Cluster) -> dict[str, tuple[float, float]]:
    """Return the range of some of these traces on that cluster: evenly spaced ones of few, the first of very many."""
    step = max(len(traces) // SAMPLES, 1) if len(traces) < SAMPLES**2 else 1
    rows = range(0, len(traces), step)[:SAMPLES]
    return merged(_of(traces[row], cluster) for row in rows)


def _of(trace: Trace, cluster: Cluster) -> dict[str, tuple[float, float]]:
    seconds = trace.duration_ns / NS_PER_S
    offered = offered_load(trace, cluster.num_gpus).load
    load = None if offered is None else round(offered, 3)
    queue, wait_s = _queueing(trace, cluster)
    return {
        GPUS_PER_JOB: (float(trace.num_gpus.min()), float(trace.num_gpus.max())),
        DURATION_S: (float(seconds.min()), float(seconds.max())),
        **({} if load is None else {LOAD: (load, load)}),
        QUEUE: (0.0, float(queue)),
        WAIT_S: (0.0, wait_s),
        NODES: (float(cluster.num_nodes), float(cluster.num_nodes)),
        GPUS_PER_NODE: (float(min(cluster.gpus)), float(max(cluster.gpus))),
    }


def _queueing(trace: Trace, cluster: Cluster) -> tuple[int, float]:
    """Return the largest number of jobs that wait at one instant, before the rule's decision, and the longest wait, seconds."""
    simulation = Simulation(trace, cluster, load_policy(RULE), Settings())
    longest = 0
    while simulation.advance():
        longest = max(longest, simulation.loop.num_waiting)
        simulation.decide()
    return longest, round(max(simulation.finished.wait, default=0) / NS_PER_S, 3)
