"""From what Slurm says to what a policy sees.

`Observer.observe` is a pure function of the snapshot and the ledger; the observer only remembers work already done for
jobs that have not changed, so that ten thousand waiting jobs cost milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from controller.columns import STATIC, build_state
from controller.dependency import Dependencies, Met
from controller.feasible import Feasibility, UnsupportedRequestError
from controller.ledger import Ledger, Served
from controller.scope import Role, Standing, standing
from controller.shape import Shape, shape_of
from controller.slurm.client import JobKey, NodeShare, ResourceRequest, SlurmJob, SlurmNode, SlurmSnapshot
from policies.model import ClusterState, EstimateSource


@dataclass(frozen=True)
class Observation:
    """What one snapshot means to Headway. `rows[i]` is the job behind row i of `state.jobs`."""

    snapshot: SlurmSnapshot
    state: ClusterState
    rows: tuple[SlurmJob, ...]
    standings: Mapping[JobKey, Standing]
    jobs: Mapping[JobKey, SlurmJob]
    """Every job in scope, ended ones included."""
    to_adopt: tuple[JobKey, ...] = ()
    """Pending jobs of ours that Slurm may start any moment: they are held before anything else."""
    to_yield: Mapping[JobKey, str] = field(default_factory=dict)
    """Jobs that only Slurm can place, and what they ask for."""

    def with_role(self, role: Role) -> list[SlurmJob]:
        """Jobs in that role."""
        return [self.jobs[key] for key, found in self.standings.items() if found.role is role]


@dataclass(slots=True)
class _Known:
    """What was worked out for a job, valid while Slurm shows the same job and the same nodes."""

    job: SlurmJob
    original: ResourceRequest | None
    static: bytes
    order: tuple[int, ...]
    problem: str = ""
    unsupported: str = ""


class Observer:
    """Turns snapshots into observations. Invariant: two calls with equal arguments give equal observations but for `sequence`."""

    def __init__(self) -> None:
        self._known: dict[JobKey, _Known] = {}
        self._signature: object = None
        self._feasibility: Feasibility | None = None
        self._sequence = 0

    def observe(self, snapshot: SlurmSnapshot, ledger: Ledger, partitions: frozenset[str]) -> Observation:
        """Classify every job, and lay out the columns that policies read."""
        self._sequence += 1
        nodes = [node for node in snapshot.nodes if node.partitions & partitions]
        feasibility = self._feasibility_of(snapshot, nodes)
        node_gpus = max((node.gpus for node in nodes), default=0)
        index = {node.name: row for row, node in enumerate(nodes)}

        standings: dict[JobKey, Standing] = {}
        jobs: dict[JobKey, SlurmJob] = {}
        adopt: list[JobKey] = []
        yielding: dict[JobKey, str] = {}
        visible: list[tuple[_Known, SlurmJob, Role]] = []
        foreign: list[NodeShare] = []
        known: dict[JobKey, _Known] = {}
        dependencies: Dependencies | None = None
        now_s = snapshot.time_s
        for job in snapshot.jobs:
            found = standing(job, partitions, ledger, now_s)
            role = found.role
            if role is Role.FOREIGN:
                if job.phase.holds_nodes:
                    foreign.extend(job.allocated)
                continue
            jobs[job.key] = job
            if role is Role.WAITING and job.dependency:
                dependencies = dependencies or Dependencies(snapshot.jobs)
                found, role = _depends(job, dependencies.of(job), yielding)
            if role is Role.ADOPT:
                adopt.append(job.key)
            elif role in {Role.WAITING, Role.STARTING, Role.RUNNING}:
                entry = self._entry(job, ledger, feasibility, node_gpus)
                known[job.key] = entry
                if role is Role.WAITING and entry.unsupported:
                    yielding[job.key] = entry.unsupported
                    found = Standing(Role.INELIGIBLE, entry.unsupported)
                elif role is Role.WAITING and entry.problem:
                    found = Standing(Role.INELIGIBLE, entry.problem)
                elif role is Role.WAITING or _placement(job, role, ledger, index):
                    visible.append((entry, job, role))
            standings[job.key] = found
        self._known = known
        visible.sort(key=lambda item: _place_in_line(item[0].order, ledger.served.get(item[1].key)))
        state = self._state(snapshot, nodes, feasibility, visible, foreign, ledger)
        return Observation(
            snapshot=snapshot,
            state=state,
            rows=tuple(job for _, job, _ in visible),
            standings=standings,
            jobs=jobs,
            to_adopt=tuple(adopt),
            to_yield=yielding,
        )

    def _feasibility_of(self, snapshot: SlurmSnapshot, nodes: list[SlurmNode]) -> Feasibility:
        """The node sets of last time while nodes, partitions and reservations have not changed."""
        fresh = Feasibility(snapshot, tuple(node.name for node in nodes))
        if self._feasibility is not None and not snapshot.reservations and fresh.signature == self._signature:
            return self._feasibility
        self._signature = fresh.signature
        self._feasibility = fresh
        self._known = {}
        return fresh

    def _entry(self, job: SlurmJob, ledger: Ledger, feasibility: Feasibility, node_gpus: int) -> _Known:
        entry = self._known.get(job.key)
        original = ledger.originals.get(job.key)
        if entry is not None and entry.job is job and entry.original is original:
            return entry
        return _work_out(job, original, feasibility, node_gpus)

    def _state(
        self,
        snapshot: SlurmSnapshot,
        nodes: list[SlurmNode],
        feasibility: Feasibility,
        visible: list[tuple[_Known, SlurmJob, Role]],
        foreign: list[NodeShare],
        ledger: Ledger,
    ) -> ClusterState:
        index = {node.name: row for row, node in enumerate(nodes)}
        placements = [_placement(job, role, ledger, index) for _, job, role in visible]
        estimates = [_estimate(job, ledger) for _, job, _ in visible] if ledger.estimates else None
        served = [ledger.served.get(job.key) for _, job, _ in visible] if ledger.served else None
        return build_state(
            sequence=self._sequence,
            time_s=snapshot.time_s,
            nodes=nodes,
            foreign=[(index[share.node], share) for share in foreign if share.node in index],
            statics=np.frombuffer(b"".join(entry.static for entry, _, _ in visible), dtype=STATIC),
            jobs=[job for _, job, _ in visible],
            placements=placements,
            estimates=estimates,
            served=served,
            node_sets=feasibility.masks,
        )


def _depends(job: SlurmJob, met: Met, yielding: dict[JobKey, str]) -> tuple[Standing, Role]:
    """Standing of a held job that waits for others."""
    if met is Met.YES:
        return Standing(Role.WAITING), Role.WAITING
    why = f"waits for other jobs ({job.dependency})"
    if met is Met.NEVER:
        why = yielding[job.key] = f"waits for a job that will not let it go ({job.dependency})"
    return Standing(Role.INELIGIBLE, why), Role.INELIGIBLE


def _work_out(job: SlurmJob, original: ResourceRequest | None, feasibility: Feasibility, node_gpus: int) -> _Known:
    request = original or job.request
    asked = job if request is job.request else _with_request(job, request)
    entry = _Known(job=job, original=original, static=b"", order=_order(job))
    shape = shape_of(request, node_gpus)
    node_set = -1
    try:
        node_set = feasibility.node_set(asked)
        if request.required_nodes and shape is not None and shape.min_nodes > len(request.required_nodes):
            raise UnsupportedRequestError("asks for certain nodes and others beside them (--nodelist with more nodes)")
    except UnsupportedRequestError as error:
        entry.unsupported = str(error)
    if shape is None:
        entry.problem = f"asks for more GPUs on a node than any node has ({node_gpus})"
        shape = _held_shape(job)
    entry.static = _static_row(job, request, shape, node_set)
    return entry


def _with_request(job: SlurmJob, request: ResourceRequest) -> SlurmJob:
    from dataclasses import replace

    return replace(job, request=request)


def _held_shape(job: SlurmJob) -> Shape:
    """Shape of a running job that would not fit as it asks: what it holds."""
    from policies.model import Split

    held = max(sum(share.gpus for share in job.allocated), 1)
    nodes = max(len(job.allocated), 1)
    return Shape(held, Split.ANY, nodes, nodes, 0)


def _static_row(job: SlurmJob, request: ResourceRequest, shape: Shape, node_set: int) -> bytes:
    cpus = 0.0 if job.exclusive else max(request.num_cpus, request.num_tasks) / shape.num_gpus
    row = np.zeros(1, dtype=STATIC)
    row["submit_time_s"] = job.key.submit_time_s
    row["num_gpus"] = shape.num_gpus
    row["split"] = shape.split
    row["min_nodes"] = shape.min_nodes
    row["max_nodes"] = shape.max_nodes
    row["gpus_per_node"] = shape.gpus_per_node
    row["cpus_per_gpu"] = cpus
    row["memory_mib_per_gpu"] = 0.0 if job.exclusive else _memory_mib(request, shape) / shape.num_gpus
    row["exclusive"] = job.exclusive
    row["node_set"] = node_set
    limit = job.time_limit_s
    row["duration_estimate_s"] = np.nan if limit is None else limit
    row["duration_spread_s"] = np.nan
    row["estimate_source"] = EstimateSource.UNKNOWN if limit is None else EstimateSource.TIME_LIMIT
    return row.tobytes()


def _memory_mib(request: ResourceRequest, shape: Shape) -> float:
    if request.memory_mib_per_node is not None:
        return request.memory_mib_per_node * shape.min_nodes
    return (request.memory_mib_per_cpu or 0) * max(request.num_cpus, request.num_tasks)


def _order(job: SlurmJob) -> tuple[int, ...]:
    """Submit time, then id by number: 9 before 10, task 2 before task 11."""
    return (job.key.submit_time_s, *(int(part) for part in re.findall(r"\d+", job.key.job_id)))


def _place_in_line(order: tuple[int, ...], served: Served | None) -> tuple[int, ...]:
    """A requeued job keeps the place in line of its first submission."""
    return order if served is None else (served.first_submit_s, *order[1:])


_Held = tuple[tuple[int, int, int], ...]


def _placement(job: SlurmJob, role: Role, ledger: Ledger, index: Mapping[str, int]) -> _Held:
    """(node, GPUs, mask) of a running job as Slurm tells it, of a starting one as it was pinned."""
    if role is Role.WAITING:
        return ()
    if role is Role.STARTING or not job.allocated:
        pin = ledger.pins.get(job.key)
        if pin is None:
            return ()
        return tuple(sorted((index[n], g, 0) for n, g in zip(pin.nodes, pin.gpus, strict=True) if n in index))
    return tuple(
        sorted((index[share.node], share.gpus, share.gpu_mask) for share in job.allocated if share.node in index)
    )


def _estimate(job: SlurmJob, ledger: Ledger) -> tuple[float, float] | None:
    found = ledger.estimates.get((job.user, job.name))
    if found is None:
        return None
    mean_s = found.mean_s if job.time_limit_s is None else min(found.mean_s, job.time_limit_s)
    return mean_s, found.spread_s
