"""Apply a policy's decision: stop, start, move and resize jobs, after every check has passed."""

from __future__ import annotations

import numpy as np

from policies.api import Decision, PolicySpec
from policies.decision_check import decision_problem
from policies.model import Placement
from policies.state.gpu_layout import mask_problem
from simulator.engine.gpu_tracker import GpuTracker
from simulator.errors import DecisionError
from simulator.kernel.constants import RUNNING
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.traces.trace import Trace


class Allocator:
    """Turns desired allocations into steps of the loop.

    A decision is checked as a whole, by the same rules as in the controller's plan: capacity, nodes that are up, complete gangs,
    jobs that must not be stopped, and the policy's own spec.
    """

    def __init__(self, trace: Trace, spec: PolicySpec | None) -> None:
        """Check decisions by that policy's spec; without one, every possible decision is allowed."""
        self._trace = trace
        self._spec = spec
        self.name = spec.name if spec is not None else "the caller"
        """Name of the maker of the decisions, for messages."""

    def check(self, decision: Decision, active: list[ActiveJob]) -> None:
        """Check the decision by itself; `active` are the jobs of its rows. Raises DecisionError."""
        waiting = np.fromiter((job.state != RUNNING for job in active), np.bool_, len(active))
        if problem := decision_problem(decision, waiting, list(map(self._id, active))):
            raise DecisionError(problem)

    def apply(self, loop: Loop, active: list[ActiveJob], decision: Decision, gpus: GpuTracker | None = None) -> None:
        """Apply a decision that `check` has passed; `active` are the jobs of its rows.

        Raises DecisionError before anything has changed.

        `gpus` is up to date, and gets the GPUs that the decision names; a decision without it names none.
        """
        allocation = decision.allocation
        leaving: list[ActiveJob] = []
        coming: list[tuple[ActiveJob, Placement]] = []
        for row, job in enumerate(active):
            wanted = allocation.get(row)
            if job.state == RUNNING:
                if wanted is not None and _is_there(job, wanted) and (gpus is None or _has_gpus(job, wanted, gpus)):
                    continue
                self._check_may_leave(job, wanted)
                leaving.append(job)
            if wanted is not None:
                coming.append((job, wanted))
        strange = [row for row in allocation if not 0 <= row < len(active)]
        if strange:
            raise DecisionError(
                f"it places a job of a row that is not one of the {len(active)} active ones: {strange[0]}"
            )
        self._check_room(loop, leaving, coming)
        if any(placement.gpu_masks for _, placement in coming):
            self._name_gpus(loop, leaving, coming, gpus)
        for job in leaving:
            loop.stop(job)
        left = {job.index for job in leaving}
        for job, placement in coming:
            if job.index in left:
                _count_move(job, placement)
            loop.dequeue(job)
            loop.start_on(job, list(placement.nodes), list(placement.gpus))

    def _check_may_leave(self, job: ActiveJob, wanted: Placement | None) -> None:
        what = "stops" if wanted is None else "moves"
        if job.fixed:
            raise DecisionError(f"it {what} job {self._id(job)}, which is not preemptible")
        if self._spec is not None and not self._spec.preempts:
            raise DecisionError(f"it {what} job {self._id(job)}, and its spec says that it does not preempt")

    def _check_room(self, loop: Loop, leaving: list[ActiveJob], coming: list[tuple[ActiveJob, Placement]]) -> None:
        pool = loop.pool
        free: dict[int, int] = {}
        for job in leaving:
            for node, gpus in zip(job.nodes, job.counts, strict=True):
                free[node] = free.get(node, int(pool.free[node])) + gpus
        for job, placement in coming:
            self._check_gang(job, placement)
            for node, gpus in placement.items():
                if not 0 <= node < pool.num_nodes or not pool.up[node]:
                    raise DecisionError(
                        f"it places job {self._id(job)} on node {node}, which does not exist or is not up"
                    )
                left = free.get(node, int(pool.free[node])) - gpus
                if left < 0 or gpus <= 0:
                    raise DecisionError(
                        f"it gives job {self._id(job)} {gpus} GPUs of node {node}, which has {left + gpus} free"
                    )
                free[node] = left

    def _name_gpus(
        self,
        loop: Loop,
        leaving: list[ActiveJob],
        coming: list[tuple[ActiveJob, Placement]],
        gpus: GpuTracker | None,
    ) -> None:
        """Check the GPUs that are named, and reserve them for their jobs."""
        if gpus is None or (self._spec is not None and not self._spec.exact_gpus):
            raise DecisionError("it names GPUs, and its spec says that it only counts them; set exact_gpus in the spec")
        freed: dict[int, int] = {}
        for job in leaving:
            for node, mask in gpus.of(job.index).items():
                freed[node] = freed.get(node, 0) | mask
        taken: dict[int, int] = {}
        names: dict[int, dict[int, int]] = {}
        for job, placement in coming:
            for (node, count), mask in zip(placement.items(), placement.gpu_masks, strict=False):
                has = int(loop.pool.capacity[node])
                others = taken.get(node, 0) | ((1 << has) - 1) & ~(gpus.free(node) | freed.get(node, 0))
                problem = mask_problem(mask, count, has, others)
                if problem:
                    raise DecisionError(f"job {self._id(job)} on node {node}: {problem}")
                taken[node] = taken.get(node, 0) | mask
            names[job.index] = dict(zip(placement.nodes, placement.gpu_masks, strict=False))
        for index, masks in names.items():
            gpus.name(index, masks)

    def _check_gang(self, job: ActiveJob, placement: Placement) -> None:
        if placement.servers:
            raise DecisionError(
                f"it gives job {self._id(job)} {placement.num_servers} parameter servers, of which the engine knows none; such "
                "jobs train in headway/ElasticAllocation-v0"
            )
        if len(set(placement.nodes)) != len(placement.nodes):
            raise DecisionError(f"it places job {self._id(job)} on nodes {placement.nodes}; name each node once")
        gpus = placement.num_gpus
        least, most = job.gpus, job.gpus
        if self._spec is None or self._spec.resizes:
            least, most = int(self._trace.min_gpus[job.index]), int(self._trace.max_gpus[job.index])
        if not least <= gpus <= most:
            takes = str(least) if least == most else f"{least} to {most}"
            raise DecisionError(f"it gives job {self._id(job)} {gpus} GPUs; it takes {takes}")

    def _id(self, job: ActiveJob) -> str:
        return self._trace.job_ids[job.index]


def _is_there(job: ActiveJob, wanted: Placement) -> bool:
    return dict(zip(job.nodes, job.counts, strict=True)) == dict(wanted.items())


def _has_gpus(job: ActiveJob, wanted: Placement, gpus: GpuTracker) -> bool:
    """Return whether the running job has the GPUs that are named for it, if some are."""
    if not wanted.gpu_masks:
        return True
    held = gpus.of(job.index)
    return all(not mask or held[node] == mask for node, mask in zip(wanted.nodes, wanted.gpu_masks, strict=True))


def _count_move(job: ActiveJob, placement: Placement) -> None:
    """Count a stop that is followed by a start at the same instant as a move or a resize, not as a preemption."""
    job.stops -= 1
    if placement.num_gpus != job.last_occupied:
        job.resizes += 1
    else:
        job.moves += 1
