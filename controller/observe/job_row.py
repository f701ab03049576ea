"""Rows of jobs: values that are computed once per job, and stay valid while Slurm shows the same job on the same nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from controller.observe.columns import STATIC_ROW
from controller.observe.elastic_range import elastic_shape
from controller.observe.eligible_nodes import ANYWHERE, EligibleNodes, Mask, UnsupportedRequestError
from controller.observe.near_nodes import near_nodes_text, near_shape, restricts
from controller.observe.resize import request_now
from controller.observe.role import WAITING, Standing, in_scope, lasting_standing
from controller.observe.shape import JobShape, even_divisions, shape_of, uneven_shape
from controller.observe.user_options import MOST_GPUS, read_user_options
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.slurm.priorities.formula import Owner
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from policies.model import EstimateSource, Split

NO_NODES: frozenset[str] = frozenset()
Occupied = tuple[tuple[int, int, int], ...]
"""Node, GPUs and mask for each node of a placement."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """Values of one job. Invariant: they depend neither on the time nor on the ledger, except for the job's relocation constraint
    and the nodes that it is kept off."""

    job: SlurmJob
    key: JobKey
    """Key of the job, repeated here because every cycle reads it."""
    standing: Standing | None
    """None: it depends on the time or on the ledger, and is computed in every cycle."""
    order: tuple[int, ...]
    """Sort key of the order of submission."""
    owner_and_name: tuple[str, str]
    """User and job name, the key of estimates."""
    static: bytes
    """One row of `columns.STATIC`."""
    occupied: Occupied
    """The job's placement on managed nodes, as Slurm shows it."""
    unsupported: str
    """Part of the request of a pending or running job that only Slurm can place; empty if there is none. A running job with such a
    part can be stopped, but neither moved nor resized: it is given to Slurm again, with the user's own request."""
    problem: str
    """Reason why the job can never be placed; empty if it can."""
    waits: bool
    """True if it waits for the policy, whatever else is in the queue, unless the ledger has a refusal of it."""
    owner: Owner = ("", "", "", "")
    """User, account, QOS and partitions, on which its priority depends."""
    anywhere: int | None = None
    """Row of the node set that it would have without its relocation constraint; None: it has no constraint."""
    partitions: tuple[tuple[str, int], ...] = ()
    """Partitions in which it can start, each with the row of its node set, if it waits and has several; else empty."""


Column = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Nodes:
    """The managed nodes, on which a row depends besides its job. Columns have one entry per node, and are never changed."""

    index: Mapping[str, int]
    eligible: EligibleNodes
    gpus: Column
    cpus: Column
    memory_mib: Column
    leaf_switches: int | None = None
    """Leaf switches, or blocks, of the cluster; 0: Slurm has no topology; None: not known."""
    users: dict[str, int] = field(default_factory=dict)
    """Numbers given to user names so far. Bound: `_MOST_USERS` of the observer, or twice the users of one snapshot."""
    qos: dict[str, int] = field(default_factory=dict)
    """Numbers given to names of QOS so far. Bound: `_MOST_QOS` of the observer, or twice those of one snapshot."""
    _usable: dict[tuple[float, float], Column] = field(default_factory=dict, repr=False, compare=False)
    """Bound: `_MOST_KEPT`."""
    _fitting: dict[tuple[JobShape, tuple[float, float], int], bool] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Bound: `_MOST_KEPT`."""

    @cached_property
    def most_gpus(self) -> int:
        """GPUs of the largest node."""
        return int(self.gpus.max(initial=0))

    @cached_property
    def all_gpus(self) -> int:
        """GPUs of all nodes together."""
        return int(self.gpus.sum())

    def usable_gpus(self, cpus_per_gpu: float, memory_mib_per_gpu: float) -> Column:
        """Return the GPUs of each empty node that have so many CPUs and so much memory beside them."""
        demand = (cpus_per_gpu, memory_mib_per_gpu)
        if demand not in self._usable:
            if len(self._usable) >= _MOST_KEPT:  # thousands of jobs need only a few different ones
                self._usable.clear()
            self._usable[demand] = self._compute_usable(*demand)
        return self._usable[demand]

    def has_room(self, shape: JobShape, per_gpu: tuple[float, float], node_set: int) -> bool:
        """Return whether a job of that shape fits on the empty nodes of a set. `per_gpu`: its CPUs and memory in MiB."""
        demand = (shape, per_gpu, node_set)
        found = self._fitting.get(demand)
        if found is None:
            if len(self._fitting) >= _MOST_KEPT:
                self._fitting.clear()
            usable = self.usable_gpus(*per_gpu)
            found = _enough(shape, usable if node_set < 0 else usable[self.eligible.masks[node_set]])
            self._fitting[demand] = found
        return found

    def _compute_usable(self, cpus_per_gpu: float, memory_mib_per_gpu: float) -> Column:
        usable = self.gpus
        for has, wants in ((self.cpus, cpus_per_gpu), (self.memory_mib, memory_mib_per_gpu)):
            if wants > 0:
                usable = np.where(has > 0, np.minimum(usable, (has + _SLACK) / wants).astype(np.int64), usable)
        return usable


_NUMBERS = re.compile(r"\d+")
_SLACK = 1e-6
_MOST_KEPT = 500
_LEAST_BY_GPU, _MOST_BY_GPU = 1e-6, 1e15
"""CPUs or MiB by GPU that messages may have, beside 0. Less limits no placement, and no node has more."""


def job_row(
    job: SlurmJob,
    ledger: Ledger,
    nodes: Nodes,
    partitions: frozenset[str],
    constraints: Mapping[JobKey, RelocationConstraint],
    unfit: frozenset[str] = NO_NODES,
) -> JobRow:
    """Return the row of a job by its user's own request, in the job's present size, and not by the request that Headway wrote.

    `constraints`: relocation constraints by job. `unfit`: nodes that it is kept off while it fits on others.
    """
    request = request_now(job, ledger)
    shape = shape_of(request, nodes.most_gpus)
    node_set, unsupported, problem, anywhere = -1, "", "", None
    by_partition: tuple[tuple[str, int], ...] = ()
    if job.phase is Phase.PENDING and in_scope(job, partitions):
        with_request = job if request is job.request else replace(job, request=request)
        shape, (node_set, unsupported, problem) = _shape_that_fits(with_request, shape, nodes)
        constraint = constraints.get(job.key, ANYWHERE)
        if shape is not None and (constraint.avoid or constraint.only) and not unsupported and not problem:
            anywhere = node_set
            node_set = nodes.eligible.node_set(with_request, _fits(with_request, shape, nodes), constraint)
        if shape is not None and unfit and not unsupported and not problem:
            node_set = _nodes_without(with_request, shape, nodes, constraint, unfit, node_set)
        if shape is not None and "," in job.partition and not unsupported and not problem:
            by_partition = _by_partition(
                with_request, shape, nodes, replace(constraint, avoid=constraint.avoid | unfit)
            )
    elif job.phase is Phase.RUNNING and shape is not None and in_scope(job, partitions):
        shape, node_set, unsupported = _nodes_of_running(replace(job, request=request), shape, nodes)
    lasting = lasting_standing(job, partitions)
    occupied = [(nodes.index[s.node], s.gpus, s.gpu_mask) for s in job.allocated if s.gpus and s.node in nodes.index]
    return JobRow(
        job=job,
        key=job.key,
        standing=lasting,
        order=_order(job, ledger),
        owner_and_name=(job.user, job.name),
        static=_static(
            job,
            request,
            _shown_shape(job, shape),
            node_set,
            nodes,
            ledger.originals.get(job.key, job.request),
            may_resize=not (unsupported or restricts(job.by_topology, nodes.leaf_switches)),
        ),
        occupied=tuple(sorted(occupied)),
        unsupported=unsupported,
        problem=problem,
        waits=lasting is WAITING and not (job.dependency or unsupported or problem),
        owner=(job.user, job.account, job.qos, job.partition),
        anywhere=anywhere,
        partitions=by_partition,
    )


def _shape_that_fits(
    job: SlurmJob, shape: JobShape | None, nodes: Nodes
) -> tuple[JobShape | None, tuple[int, str, str]]:
    """Return the shape, or that of a job which Slurm divides if equal parts need more nodes than there are, with `_nodes_for`."""
    shape, found = _shape_near(job, shape, nodes)
    uneven = uneven_shape(job.request, shape) if found[2] else None
    return (shape, found) if uneven is None else (uneven, _nodes_for(job, uneven, nodes))


def _shape_near(job: SlurmJob, shape: JobShape | None, nodes: Nodes) -> tuple[JobShape | None, tuple[int, str, str]]:
    """Return the shape, with `_nodes_for`. A job of nodes near each other gets one node, and is left to Slurm if none has room."""
    near = None if shape is None else near_shape(job, shape, nodes.leaf_switches)
    found = _nodes_for(job, near, nodes)
    if near is shape or not (found[1] or found[2]):
        return near, found
    return shape, (-1, found[1] or near_nodes_text(job, 2, nodes.leaf_switches), "")


def _nodes_for(job: SlurmJob, shape: JobShape | None, nodes: Nodes) -> tuple[int, str, str]:
    """Return the row of its node set, the part of the request that only Slurm can place, and the reason why no placement
    exists."""
    if shape is None:
        return -1, "", f"asks for more GPUs on a node than any node has ({nodes.most_gpus})"
    if near := near_nodes_text(job, shape.min_nodes, nodes.leaf_switches):
        return -1, near, ""
    required = job.request.required_nodes
    if required and shape.min_nodes > len(required):
        return -1, "asks for certain nodes and for others in addition (--nodelist with more nodes)", ""
    fits = _fits(job, shape, nodes)
    try:
        node_set = nodes.eligible.node_set(job, fits)
        if nodes.has_room(shape, _per_gpu(job, job.request, shape), node_set) or fits(nodes.eligible.eventually(job)):
            return node_set, "", ""
    except UnsupportedRequestError as error:
        return -1, str(error), ""
    return node_set, "", "asks for more GPUs, CPUs or memory than its eligible nodes have"


def _nodes_of_running(job: SlurmJob, shape: JobShape, nodes: Nodes) -> tuple[JobShape | None, int, str]:
    """Return the shape of a running job, the row of the set of nodes that it could be moved to, and the part of its request that
    only Slurm can place; with such a part, the set of the nodes that it has."""
    found, (node_set, unsupported, _) = _shape_near(job, shape, nodes)
    if unsupported:
        node_set = nodes.eligible.only({share.node for share in job.allocated})
    return found, node_set, unsupported


def _by_partition(
    job: SlurmJob, shape: JobShape, nodes: Nodes, constraint: RelocationConstraint
) -> tuple[tuple[str, int], ...]:
    """Return the partitions in which the job fits now under its constraint, each with the row of its node set."""
    return nodes.eligible.by_partition(job, _fits(job, shape, nodes), constraint)


def _nodes_without(
    job: SlurmJob,
    shape: JobShape,
    nodes: Nodes,
    constraint: RelocationConstraint,
    unfit: frozenset[str],
    otherwise: int,
) -> int:
    """Return the row of its node set without those nodes; with them, if it would not fit on the others even when they are empty."""
    without = replace(constraint, avoid=constraint.avoid | unfit)
    found = nodes.eligible.node_set(job, _fits(job, shape, nodes), without)
    return found if nodes.has_room(shape, _per_gpu(job, job.request, shape), found) else otherwise


def _fits(job: SlurmJob, shape: JobShape, nodes: Nodes) -> Callable[[Mask], bool]:
    """Return the function that tells node sets on which the job fits, when they are empty, from others."""
    usable = nodes.usable_gpus(*_per_gpu(job, job.request, shape))
    return lambda mask: _enough(shape, usable[mask])


def _enough(shape: JobShape, usable: Column) -> bool:
    """Return whether the job fits on empty nodes with so many usable GPUs each."""
    if shape.split is Split.FIXED:
        return bool(np.count_nonzero(usable >= shape.gpus_per_node) >= shape.min_nodes)
    if shape.split is Split.EVEN:
        return any(np.count_nonzero(usable >= here) >= nodes for nodes, here in even_divisions(shape))
    return bool(usable.sum() >= shape.num_gpus and np.count_nonzero(usable) >= shape.min_nodes)


def _per_gpu(job: SlurmJob, request: ResourceRequest, shape: JobShape) -> tuple[float, float]:
    """Return the CPUs, and the memory in MiB, that the job needs for each GPU."""
    if job.exclusive:
        return 0.0, 0.0
    cpus = max(request.num_cpus, request.num_tasks)
    return _by_gpu(cpus, shape), _by_gpu(_memory_mib(request, shape), shape)


def _by_gpu(amount: float, shape: JobShape) -> float:
    each = amount / shape.num_gpus
    return 0.0 if each < _LEAST_BY_GPU else min(each, _MOST_BY_GPU)


def _shown_shape(job: SlurmJob, shape: JobShape | None) -> JobShape:
    """Return the shape that policies see: that of the allocation if the request never fits, or exceeds every cluster."""
    return _shape_allocated(job) if shape is None or shape.num_gpus > MOST_GPUS else shape


def _shape_allocated(job: SlurmJob) -> JobShape:
    """Return the shape of a running job's allocation, for a job whose request would not fit."""
    nodes = max(len(job.allocated), 1)
    return JobShape(max(sum(share.gpus for share in job.allocated), 1), Split.ANY, nodes, nodes, 0)


def _static(
    job: SlurmJob,
    request: ResourceRequest,
    shape: JobShape,
    node_set: int,
    nodes: Nodes,
    own: ResourceRequest,
    *,
    may_resize: bool,
) -> bytes:
    options = read_user_options(job.comment)
    limit = job.time_limit_s
    runs = job.start_time_s is not None and job.phase.occupies_nodes
    cpus_per_gpu, memory_mib_per_gpu = _per_gpu(job, request, shape)
    least = most = shape.num_gpus
    if may_resize:
        shape, least, most = elastic_shape(own, shape, options, nodes.all_gpus)
    return STATIC_ROW.pack(
        job.key.submit_time_s,
        job.start_time_s if runs else np.nan,
        shape.num_gpus,
        shape.split,
        shape.min_nodes,
        shape.max_nodes,
        shape.gpus_per_node,
        cpus_per_gpu,
        memory_mib_per_gpu,
        job.exclusive,
        node_set,
        np.nan if limit is None else limit,
        np.nan,
        EstimateSource.UNKNOWN if limit is None else EstimateSource.TIME_LIMIT,
        nodes.users.setdefault(job.user, len(nodes.users)),
        nodes.qos.setdefault(job.qos, len(nodes.qos)) if job.qos else -1,
        least,
        most,
        np.nan if options.epochs is None else options.epochs,
        np.nan if options.steps is None else options.steps,
        max(own.num_cpus, own.num_tasks),
        _memory_mib(own, shape),
        job.nice,
        np.nan if job.eligible_time_s is None else job.eligible_time_s,
    )


def _memory_mib(request: ResourceRequest, shape: JobShape) -> float:
    if request.memory_mib_per_node is not None:
        return request.memory_mib_per_node * shape.min_nodes
    return (request.memory_mib_per_cpu or 0) * max(request.num_cpus, request.num_tasks)


def _order(job: SlurmJob, ledger: Ledger) -> tuple[int, ...]:
    """Return submit time, then id by number: 9 before 10, task 2 before task 11. A requeued job keeps its first submit time."""
    served = ledger.served.get(job.key)
    submit_s = job.key.submit_time_s if served is None else served.first_submit_s
    return (submit_s, *map(int, _NUMBERS.findall(job.key.job_id)))
