"""The simulated cluster as a policy sees it: a `ClusterState` as a live cluster gives."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from policies.model import ClusterState, EstimateSource, IntColumn, Jobs, JobState, Nodes, Split
from simulator.cluster.cluster import Cluster
from simulator.engine.view.gpu_columns import layout_columns, mask_column
from simulator.engine.view.measured_columns import HeldGpus, MeasuredColumns
from simulator.engine.view.profile_columns import Measured, ProfileColumns, link_columns
from simulator.engine.view.training_columns import TrainingColumns
from simulator.kernel.constants import NEVER, RUNNING
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.traces.trace import NS_PER_S, Trace

_BY_INDEX = attrgetter("index")


class StateView:
    """Makes cluster states of one trace on one cluster; constant columns are computed once."""

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        source: EstimateSource,
        profiles: ModelProfiles | None = None,
        models: Sequence[SlowdownModel] = (),
    ) -> None:
        """Estimates come from `source`; policies see `profiles`, if any, and measurements by `models`, which know no job yet."""
        self._trace = trace
        self._cluster = cluster
        self._source = source
        measured = Measured.where(models)
        self._profiles = ProfileColumns(trace, profiles, measured) if profiles is not None else None
        self._measured = MeasuredColumns(trace, cluster, models, profiles)
        self._training = TrainingColumns(trace)
        nodes = len(cluster.gpus)
        self._gpus = np.array(cluster.gpus, dtype=np.int64)
        self._racks = np.array(cluster.racks, dtype=np.int64)
        layout, self._layouts = layout_columns(cluster.topology)
        self._links: dict[str, Any] = {**link_columns(cluster.topology), "gpu_layout": layout}
        if measured.speeds:
            self._links["gpu_speed"] = np.array(cluster.speed, dtype=np.float64)
        self._zeros = np.zeros(nodes, dtype=np.int64)
        self._no_sets = np.zeros((0, nodes), dtype=np.bool_)
        users: dict[str, int] = {}
        self._user = np.array([users.setdefault(user, len(users)) for user in trace.user], dtype=np.int64)
        self._users = tuple(users)
        self._elastic = trace.elastic

    def active(self, loop: Loop) -> list[ActiveJob]:
        """Return the jobs of the rows of a state: all active ones, by submission."""
        jobs = loop.running + [job for queue in loop.queues for job in queue]
        jobs.sort(key=_BY_INDEX)
        return jobs

    def state(self, loop: Loop, active: list[ActiveJob], sequence: int, gpus: HeldGpus | None = None) -> ClusterState:
        """Return what a policy may know now. `active` are the jobs that `active()` returned, settled; `gpus` knows which GPUs
        the running ones have."""
        profiles = self._profiles.of([job.index for job in active]) if self._profiles is not None else None
        return ClusterState(
            sequence,
            loop.now / NS_PER_S,
            self._nodes(loop),
            self._jobs(active, gpus),
            self._no_sets,
            profiles,
            self._layouts,
        )

    def _nodes(self, loop: Loop) -> Nodes:
        zeros = self._zeros
        available = np.array(loop.pool.up, dtype=np.int64) > 0
        return Nodes(
            self._cluster.names, self._gpus, zeros, zeros, available, zeros, zeros, zeros, self._racks, **self._links
        )

    def _jobs(self, active: list[ActiveJob], gpus_held: HeldGpus | None) -> Jobs:
        """Return the columns of the jobs. Each has a line."""
        trace, count = self._trace, len(active)
        rows = np.fromiter((job.index for job in active), dtype=np.int64, count=count)
        service = np.fromiter((job.service for job in active), dtype=np.int64, count=count)
        remaining = np.fromiter((job.remaining() for job in active), dtype=np.int64, count=count)
        occupied = np.fromiter(
            (len(job.nodes) if job.state == RUNNING else 0 for job in active), dtype=np.int64, count=count
        )
        running = occupied > 0
        start = np.fromiter((job.start for job in active), dtype=np.int64, count=count) / NS_PER_S
        known = remaining != NEVER
        gpus = trace.num_gpus[rows]
        # The range of sizes is given only if some job is elastic.
        elastic = self._elastic and count > 0
        return Jobs(
            ids=tuple([trace.job_ids[row] for row in rows.tolist()]),
            state=np.where(running, int(JobState.RUNNING), int(JobState.PENDING)),
            submit_time_s=trace.submit_ns[rows] / NS_PER_S,
            start_time_s=np.where(running, start, np.nan),
            num_gpus=gpus,
            max_nodes=trace.max_gpus[rows],
            service_s=service / NS_PER_S,
            attained_gpu_s=np.fromiter((job.attained for job in active), dtype=np.float64, count=count) / NS_PER_S,
            duration_estimate_s=np.where(known, (service + np.where(known, remaining, 0)) / NS_PER_S, np.nan),
            estimate_source=np.where(known, int(self._source), int(EstimateSource.UNKNOWN)),
            preemptible=np.fromiter((not job.fixed for job in active), dtype=np.bool_, count=count),
            user=self._user[rows],
            users=self._users,
            placement_offset=np.concatenate(([0], np.cumsum(occupied))),
            placement_node=_flat(active, "nodes"),
            placement_gpus=_flat(active, "counts"),
            placement_gpu_mask=mask_column(active, int(occupied.sum()), gpus_held),
            min_gpus=trace.min_gpus[rows] if elastic else None,
            max_gpus=trace.max_gpus[rows] if elastic else None,
            **(
                _not_simulated(count)
                | self._measured.of(active, rows, running, gpus_held)
                | self._training.of(active, rows)
            ),
        )


def _not_simulated(count: int) -> dict[str, Any]:
    """Return the columns that are the same for every simulated job: its GPUs may be divided in any way, and it needs no more."""
    ones, zeros = np.ones(count, dtype=np.int64), np.zeros(count)
    return {
        "split": ones * int(Split.ANY),
        "min_nodes": ones,
        "gpus_per_node": ones * 0,
        "cpus_per_gpu": zeros,
        "memory_mib_per_gpu": zeros,
        "duration_spread_s": np.full(count, np.nan),
        "exclusive": np.zeros(count, dtype=np.bool_),
        "node_set": ones * -1,
    }


def _flat(active: list[ActiveJob], name: str) -> IntColumn:
    return np.array([entry for job in active if job.state == RUNNING for entry in getattr(job, name)], dtype=np.int64)
