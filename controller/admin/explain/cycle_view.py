"""View of one finished cycle: the role, the order and the placement of each job now.

The cycle's snapshot is older than the changes by its own decision. The view adds the ledger's newer facts, so that a job
that was placed a moment ago is not shown as waiting.

"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from controller.admin.explain.free_capacity import FreeCapacity
from controller.base.apart import LEFT_OUT
from controller.base.text import describe_placement
from controller.cycle.view.result import CycleResult
from controller.observe.eligible_nodes import EligibleNodes, UnsupportedRequestError
from controller.observe.resize import request_now
from controller.observe.role import Obstacle, Role, Standing
from controller.observe.shape import shape_of
from controller.profiles.current import Contention, run_of
from controller.slurm.model.job import JobKey, SlurmJob
from controller.state.ledger import Ledger, PinRecord
from policies.model import BoolColumn, ClusterState
from policies.wire.messages import state_digest

UNMANAGED = Standing(Role.FOREIGN)
SHOWN = (Role.WAITING, Role.STARTING, Role.YIELDED, Role.RUNNING, Role.INELIGIBLE)
"""Roles in a queue listing, in their order. Jobs that are about to be taken over count as yielded: Slurm may start them."""


class CycleView:
    """View of one `CycleResult`. Invariant: it changes nothing, and computes each expensive value once, at its first use."""

    def __init__(self, result: CycleResult, ledger: Ledger, partitions: Iterable[str]) -> None:
        """`partitions`: the managed partitions."""
        self.result = result
        self.ledger = ledger
        self.partitions = frozenset(partitions)

    @property
    def state(self) -> ClusterState:
        """State on which the policy decided."""
        return self.result.observation.state

    @property
    def policy(self) -> str:
        """Maker of the last decision: a policy's name, or fallback:NAME; empty when there was nothing to decide."""
        return "" if self.result.decided is None else self.result.decided.policy

    @property
    def ordered_by(self) -> str:
        """How that policy orders waiting jobs, in words that follow "orders"; empty if it does not state it."""
        return "" if self.result.decided is None else self.result.decided.ordered_by

    @cached_property
    def digest(self) -> str:
        """Digest of the state on which the policy decided."""
        return state_digest(self.state)

    @cached_property
    def rows(self) -> dict[JobKey, int]:
        """Row of each job that the policy saw."""
        return {job.key: row for row, job in enumerate(self.result.observation.rows)}

    @cached_property
    def positions(self) -> dict[int, int]:
        """Position of each waiting job's row in the policy's order, from 1; a policy may leave out jobs."""
        if self.result.decided is None:
            return {}
        waiting = set(self.state.pending.tolist())
        order = dict.fromkeys(row for row in self.result.decided.plan.queue if row in waiting)
        return {row: position for position, row in enumerate(order, start=1)}

    @cached_property
    def free_capacity(self) -> FreeCapacity:
        """Free capacity. Jobs that this cycle placed count as running."""
        decided = self.result.decided
        starts = () if decided is None else decided.plan.starts
        placed = [(start.row, start.placement) for start in starts if self._pinned_now(start.row)]
        return FreeCapacity(self.state, placed)

    def nodes_without_reservations(self, job: SlurmJob) -> BoolColumn:
        """Return the nodes that are up and that the job could use if other reservations than its own were gone."""
        nodes, own = self.state.nodes, job.reservation
        try:
            usable = self._eligible.eventually(job) & nodes.available
        except UnsupportedRequestError:
            return np.zeros(len(nodes), dtype=np.bool_)
        if not own:
            return usable
        known = next((each.nodes for each in self.result.observation.snapshot.reservations if each.name == own), ())
        return usable & np.array([name in known for name in nodes.names], dtype=np.bool_)

    @cached_property
    def _eligible(self) -> EligibleNodes:
        return EligibleNodes(self.result.observation.snapshot, self.state.nodes.names)

    @cached_property
    def node_gpus(self) -> int:
        """GPUs of the largest managed node."""
        return int(max(self.state.nodes.gpus, default=0))

    def standing(self, job: SlurmJob) -> Standing:
        """Role of the job as of now."""
        found = self.result.observation.standings.get(job.key, UNMANAGED)
        if found.role is not Role.WAITING:
            return found
        if self.ledger.yielded.get(job.key) == job.restarts:
            return Standing(Role.YIELDED, "given to Slurm to place")
        row = self.rows.get(job.key)
        if row is not None and row in self._started:
            if job.key in self.ledger.pins:
                return Standing(Role.STARTING)
            refusal = self.ledger.refusals.get(job.key)
            if refusal is None:
                return found
            return Standing(Role.INELIGIBLE, f"was not started: {refusal.reason}", Obstacle.REFUSAL)
        return found

    def jobs(self) -> Iterator[tuple[SlurmJob, Standing]]:
        """Yield every job that Headway manages with its role now; ended jobs are left out.

        A job that leads to an unexpected error has the role of the last cycle.
        """
        for key, job in self.result.observation.jobs.items():
            try:
                found = self.standing(job)
            except Exception as error:  # noqa: BLE001 - one job must not hide all others
                LEFT_OUT.note("roles of jobs", key.job_id, error)
                found = self.result.observation.standings.get(key, UNMANAGED)
            if found.role in {Role.ENDED, Role.FOREIGN}:
                continue
            yield job, found

    def find(self, job_id: str) -> SlurmJob | None:
        """Return the newest job of that id, managed or not; None when Slurm knows none."""
        return self._newest.get(job_id)

    def tasks(self, array_id: str) -> list[SlurmJob]:
        """Return the tasks of that array, in the order of their numbers."""
        return sorted(self._tasks.get(array_id, ()), key=lambda job: (len(job.key.job_id), job.key.job_id))

    @cached_property
    def _newest(self) -> dict[str, SlurmJob]:
        """Newest job of each id."""
        found: dict[str, SlurmJob] = {}
        for job in self.result.observation.snapshot.jobs:
            other = found.get(job.key.job_id)
            if other is None or job.key.submit_time_s > other.key.submit_time_s:
                found[job.key.job_id] = job
        return found

    @cached_property
    def _tasks(self) -> dict[str, list[SlurmJob]]:
        """Tasks of each array."""
        found: dict[str, list[SlurmJob]] = {}
        for job in self.result.observation.snapshot.jobs:
            array_id, is_task, _ = job.key.job_id.partition("_")
            if is_task:
                found.setdefault(array_id, []).append(job)
        return found

    def pin(self, job: SlurmJob) -> PinRecord | None:
        """Return the placement of this run of the job; None when Headway has not placed it."""
        pin = self.ledger.pins.get(job.key)
        return pin if pin is not None and pin.restarts == job.restarts else None

    def placement(self, job: SlurmJob) -> str:
        """Return the GPUs that the job occupies or is about to occupy, "n1:8,n2:4"; empty while it waits."""
        if job.allocated:
            return describe_placement((s.node for s in job.allocated), (s.gpus for s in job.allocated))
        pin = self.pin(job)
        return "" if pin is None else describe_placement(pin.nodes, pin.gpus)

    def num_gpus(self, job: SlurmJob) -> int:
        """Return the GPUs that the job occupies or requests on all nodes; 0 when it requests none."""
        allocated = sum(share.gpus for share in job.allocated)
        row = self.rows.get(job.key)
        if allocated or row is not None:
            return allocated or int(self.state.jobs.num_gpus[row])
        request = request_now(job, self.ledger)
        shape = shape_of(request, self.node_gpus)
        if shape is not None:
            return shape.num_gpus
        return request.least_gpus

    def contention(self, job: SlurmJob) -> Contention | None:
        """Return the measured contention of a job; None when it is not measured."""
        run = run_of(job)
        return None if run is None else self.result.observation.measured.get(run)

    @cached_property
    def _ids(self) -> dict[int, str]:
        """Job id, as users see it, by Slurm's own number, of each job that occupies nodes."""
        jobs = self.result.observation.snapshot.jobs
        return {job.raw_id: job.key.job_id for job in jobs if job.allocated and job.raw_id is not None}

    def called(self, raw_id: int) -> str:
        """Return the id by which users know the job of that number."""
        return self._ids.get(raw_id, str(raw_id))

    def beside(self, found: Contention) -> list[str]:
        """Return the ids of the jobs that share a link or a host with that job."""
        return [self.called(other.run.job_id) for other in found.window.neighbours]

    def first_submit_s(self, job: SlurmJob) -> float:
        """Return the time of its first submission; Slurm gives a requeued job a new submit time."""
        served = self.ledger.served.get(job.key)
        return job.key.submit_time_s if served is None else served.first_submit_s

    def wait_s(self, job: SlurmJob, now_s: float) -> float:
        """Return the seconds since its submission in which the job was not running."""
        served = self.ledger.served.get(job.key)
        until_s = job.start_time_s if job.phase.occupies_nodes and job.start_time_s is not None else now_s
        return max(until_s - self.first_submit_s(job) - (served.service_s if served else 0.0), 0.0)

    @cached_property
    def _started(self) -> frozenset[int]:
        decided = self.result.decided
        return frozenset() if decided is None else frozenset(start.row for start in decided.plan.starts)

    def _pinned_now(self, row: int) -> bool:
        return self.result.observation.rows[row].key in self.ledger.pins
