"""The queue and the past of a simulation, as forecasts read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from policies.model import IntColumn, Split
from policies.placement.requests import divide
from simulator.cluster.cluster import Cluster
from simulator.engine.simulation import Simulation
from simulator.forecast.queue import PastJobs, Queue, QueueJobs
from simulator.kernel.constants import RUNNING
from simulator.kernel.job import ActiveJob
from simulator.traces.trace import NS_PER_S, Trace

_NEWEST = 20_000
"""Number of submitted jobs that a forecast gets to know, the last ones."""


class SimulatedQueue:
    """A scheduler's knowledge of that simulation. Invariant: of a job that has not ended, it has only what its user stated."""

    def __init__(self, trace: Trace, cluster: Cluster, simulation: Simulation) -> None:
        """Jobs of one group have the same user and virtual cluster; those of one kind also the same model and size."""
        self.simulation = simulation
        self._trace, self._cluster = trace, cluster
        sizes, of = np.unique(trace.num_gpus, return_inverse=True)
        usable = Counter(cluster.gpus)
        self._parts = [divide(gpus, Split.ANY, 1, gpus, 0, usable) for gpus in sizes.tolist()]
        self._size = of.astype(np.int64)
        self._group = _numbers(list(zip(trace.user, trace.vc, strict=True)))
        self._kind = _numbers(list(zip(self._group.tolist(), trace.model, trace.num_gpus.tolist(), strict=True)))
        self._submit_s, self._limit_s = trace.submit_ns / NS_PER_S, trace.limit_ns / NS_PER_S
        self._end_s, self._service_s = np.full(len(trace), np.nan), np.full(len(trace), np.nan)
        self.first_start_s = np.full(len(trace), np.nan)
        """First start of each job that has ended."""
        self._seen = 0

    def read(self) -> tuple[IntColumn, Queue, PastJobs]:
        """Return the rows of the present jobs in the trace, these jobs, and all that were submitted up to now."""
        loop = self.simulation.loop
        jobs = [*loop.running, *(job for queue in loop.queues for job in queue)]
        jobs.sort(key=lambda job: job.index)
        for job in jobs:
            job.settle(loop.now)
        rows = np.array([job.index for job in jobs], dtype=np.int64)
        cluster = self._cluster
        queue = Queue(
            now_s=loop.now / NS_PER_S,
            node_gpus=tuple(cluster.gpus),
            node_up=(True,) * cluster.num_nodes,
            parts=self._parts,
            jobs=self._jobs(rows, jobs),
        )
        return rows, queue, self._past()

    def _jobs(self, rows: IntColumn, jobs: Sequence[ActiveJob]) -> QueueJobs:
        return QueueJobs(
            gpus=self._trace.num_gpus[rows],
            size=self._size[rows],
            group=self._group[rows],
            kind=self._kind[rows],
            running=np.array([job.state == RUNNING for job in jobs], dtype=np.bool_),
            service_s=np.array([job.service for job in jobs]) / NS_PER_S,
            attained_gpu_s=np.array([job.attained for job in jobs]) / NS_PER_S,
            estimate_s=self._limit_s[rows],
            limit_s=self._limit_s[rows],
            fixed=~self._trace.preemptible[rows],
            ending=np.zeros(len(rows), dtype=np.bool_),
            places={k: (list(job.nodes), list(job.counts)) for k, job in enumerate(jobs) if job.state == RUNNING},
        )

    def _past(self) -> PastJobs:
        log = self.simulation.finished
        new = np.array(log.index[self._seen :], dtype=np.int64)
        self._end_s[new] = np.array(log.finish[self._seen :]) / NS_PER_S
        self._service_s[new] = np.array(log.service[self._seen :]) / NS_PER_S
        self.first_start_s[new] = np.array(log.first_start[self._seen :]) / NS_PER_S
        self._seen = len(log.index)
        arrived = self.simulation.loop.arrived
        rows = slice(max(arrived - _NEWEST, 0), arrived)
        return PastJobs(
            submit_s=self._submit_s[rows],
            end_s=self._end_s[rows].copy(),
            duration_s=self._service_s[rows].copy(),
            gpus=self._trace.num_gpus[rows],
            size=self._size[rows],
            group=self._group[rows],
            kind=self._kind[rows],
            limit_s=self._limit_s[rows],
        )


def _numbers(texts: Sequence[Hashable]) -> IntColumn:
    """Return a number for each value: equal values have equal numbers, counted from 0."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)
