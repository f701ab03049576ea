"""Measurements of running jobs: the columns of `policies.model.Jobs` that node agents measure on a live cluster.

Contention sensitivity is, as on a live cluster, a job's speed alone on the same GPUs over its present speed: the cost of its own
placement is not contention. The simulation knows it exactly, so the confidence is 1. Throughput is known for jobs whose model has
a profile: steps at the requested size and its best placement, times the present speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from policies.model import BoolColumn, FloatColumn, IntColumn
from simulator.cluster.cluster import Cluster
from simulator.kernel.job import ActiveJob
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite
from simulator.slowdown.links.ring import BestRing
from simulator.slowdown.profiles.model_profiles import ModelProfiles, key_of
from simulator.traces.trace import Trace

_Placement = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class HeldGpus(Protocol):
    """Which GPUs running jobs have."""

    def of(self, job: int) -> Mapping[int, int]:
        """Return the GPUs of the running job of this row, by node (bit k: GPU k)."""


class MeasuredColumns:
    """Measured columns of one trace on one cluster. Invariant: only its caches change; copies of a simulation share it."""

    def __init__(
        self, trace: Trace, cluster: Cluster, models: Sequence[SlowdownModel], profiles: ModelProfiles | None
    ) -> None:
        """`models` must know no job, and be used by nothing else. Without models nothing is measured."""
        self._empty = Composite(models) if models else None
        self._trace = trace
        self._profiles = profiles
        self._known = frozenset(map(key_of, profiles.models)) if profiles is not None else frozenset()
        self._best = BestRing(cluster.topology) if profiles is not None else None
        self._alone: dict[int, tuple[_Placement, float]] = {}
        """Last placement and speed alone of the jobs that were slowed down."""
        self._ideal = np.full(len(trace), -1.0)
        """Steps/s by row of the trace; NaN: not known, -1: not computed yet."""

    def of(
        self, active: Sequence[ActiveJob], rows: IntColumn, running: BoolColumn, held: HeldGpus | None = None
    ) -> dict[str, FloatColumn]:
        """Return the columns for a state of these jobs, of those rows of the trace; empty where no job runs."""
        if self._empty is None or not running.any():
            return {}
        places = np.flatnonzero(running)
        jobs = [active[place] for place in places.tolist()]
        speed = np.array([job.speed for job in jobs])
        occupied = np.array([job.occupied for job in jobs])
        gpus = self._trace.num_gpus[rows[places]]
        sensitivity, steps_per_s = np.full((2, len(active)), np.nan)
        sensitivity[places] = 1.0
        for at in np.flatnonzero((speed != 1.0) | (occupied != gpus)).tolist():
            sensitivity[places[at]] = self._sensitivity(jobs[at], held)
        # The batch of a GPU is fixed: at another size, a step trains another number of examples.
        steps_per_s[places] = speed * gpus / occupied * self._ideal_steps_per_s(rows[places])
        return {
            "contention_sensitivity": sensitivity,
            "contention_confidence": np.where(np.isnan(sensitivity), 0.0, 1.0),
            "throughput_steps_per_s": steps_per_s,
        }

    def _sensitivity(self, job: ActiveJob, gpus: HeldGpus | None) -> float:
        return max(1.0, self._alone_speed(job, gpus) / job.speed) if job.speed > 0 else float("nan")

    def _alone_speed(self, job: ActiveJob, gpus: HeldGpus | None) -> float:
        masks = {} if gpus is None else gpus.of(job.index)
        placement = tuple(job.nodes), tuple(job.counts), tuple(masks.values())
        known = self._alone.get(job.index)
        if known is not None and known[0] == placement:
            return known[1]
        assert self._empty is not None, "only models slow jobs down"
        trace, index = self._trace, job.index
        batch = batch_per_gpu(int(trace.batch_size[index]), job.gpus)
        self._empty.enter(Resident(index, trace.model[index], batch, job.gpus, job.nodes, job.counts, masks))
        self._empty.changed()  # models may compute factors in this call
        speed = self._empty.speed(index)
        self._empty.leave(index)
        self._alone[index] = placement, speed
        return speed

    def _ideal_steps_per_s(self, wanted: IntColumn) -> FloatColumn:
        """Return steps/s of those rows of the trace, at the requested size and its best placement."""
        for row in wanted[self._ideal[wanted] < 0].tolist():
            self._ideal[row] = self._ideal_of(row)
        return self._ideal[wanted]

    def _ideal_of(self, row: int) -> float:
        model, gpus = self._trace.model[row], int(self._trace.num_gpus[row])
        if self._profiles is None or self._best is None or key_of(model) not in self._known:
            return float("nan")
        profile, batch = self._profiles.of(model), batch_per_gpu(int(self._trace.batch_size[row]), gpus)
        return 1 / profile.step_s(self._best.seconds(profile, gpus), batch)
