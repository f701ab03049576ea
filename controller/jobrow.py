"""What is worked out for one job once, and holds as long as Slurm shows the same job on the same nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from controller.columns import STATIC
from controller.feasible import Feasibility, UnsupportedRequestError
from controller.ledger import Ledger
from controller.scope import WAITING, Standing, lasting_standing
from controller.shape import Shape, shape_of
from controller.slurm.client import ResourceRequest, SlurmJob
from policies.model import EstimateSource, Split

Held = tuple[tuple[int, int, int], ...]
"""(node, GPUs, mask) by node."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """Invariant: nothing in it depends on the time, nor on what the ledger learns while the job stays as it is."""

    job: SlurmJob
    standing: Standing | None
    """None: it depends on the time or on the ledger, and is looked up in every cycle."""
    order: tuple[int, ...]
    """Place in line."""
    who: tuple[str, str]
    """(user, job name), the key of estimates."""
    static: bytes
    """One row of `columns.STATIC`."""
    held: Held
    """What Slurm says that it holds, on managed nodes."""
    unsupported: str
    """What it asks for that only Slurm can place; empty when nothing."""
    problem: str
    """Why no placement can ever suit it; empty when one can."""
    waits: bool
    """It waits for the policy, whatever else is in the queue, unless the ledger has a refusal of it."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What the rows depend on besides the job."""

    index: Mapping[str, int]
    feasibility: Feasibility
    most_gpus: int
    """GPUs of the largest node."""
    gpus: npt.NDArray[np.int64]
    """GPUs of each node."""
    users: dict[str, int]
    """Numbers given to user names so far; grows."""


def job_row(job: SlurmJob, ledger: Ledger, nodes: Nodes, partitions: frozenset[str]) -> JobRow:
    """Work it out. The request that counts is the user's own, not what Headway made of it."""
    request = ledger.originals.get(job.key, job.request)
    shape = shape_of(request, nodes.most_gpus)
    asked = replace(job, request=request)
    node_set, unsupported = _node_set(asked, shape, nodes.feasibility)
    problem = "" if unsupported else _problem(asked, shape, node_set, nodes)
    lasting = lasting_standing(job, partitions)
    return JobRow(
        job=job,
        standing=lasting,
        order=_order(job, ledger),
        who=(job.user, job.name),
        static=_static(job, request, shape or _shape_held(job), node_set, nodes),
        held=tuple(
            sorted((nodes.index[s.node], s.gpus, s.gpu_mask) for s in job.allocated if s.gpus and s.node in nodes.index)
        ),
        unsupported=unsupported,
        problem=problem,
        waits=lasting is WAITING and not (job.dependency or unsupported or problem),
    )


def _node_set(job: SlurmJob, shape: Shape | None, feasibility: Feasibility) -> tuple[int, str]:
    """Row of the job's node set, and what it asks for that only Slurm can place."""
    required = job.request.required_nodes
    if required and shape is not None and shape.min_nodes > len(required):
        return -1, "asks for certain nodes and others beside them (--nodelist with more nodes)"
    try:
        return feasibility.node_set(job), ""
    except UnsupportedRequestError as error:
        return -1, str(error)


def _problem(job: SlurmJob, shape: Shape | None, node_set: int, nodes: Nodes) -> str:
    """Why the job would not fit even on an empty cluster with every node up."""
    if shape is None:
        return f"asks for more GPUs on a node than any node has ({nodes.most_gpus})"
    if _enough(shape, nodes.gpus if node_set < 0 else nodes.gpus[nodes.feasibility.masks[node_set]]):
        return ""
    if _enough(shape, nodes.gpus[nodes.feasibility.eventually(job)]):
        return ""
    return "asks for more than the nodes that it may use have together"


def _enough(shape: Shape, gpus: npt.NDArray[np.int64]) -> bool:
    """Whether empty nodes with so many GPUs each hold the job."""
    if shape.split is Split.FIXED:
        return bool(np.count_nonzero(gpus >= shape.gpus_per_node) >= shape.min_nodes)
    return bool(gpus.sum() >= shape.num_gpus and np.count_nonzero(gpus) >= shape.min_nodes)


def _shape_held(job: SlurmJob) -> Shape:
    """Shape of a running job that would not fit as it asks: what it holds."""
    nodes = max(len(job.allocated), 1)
    return Shape(max(sum(share.gpus for share in job.allocated), 1), Split.ANY, nodes, nodes, 0)


def _static(job: SlurmJob, request: ResourceRequest, shape: Shape, node_set: int, nodes: Nodes) -> bytes:
    row = np.zeros(1, dtype=STATIC)
    limit = job.time_limit_s
    runs = job.start_time_s is not None and job.phase.holds_nodes
    cpus = 0.0 if job.exclusive else max(request.num_cpus, request.num_tasks)
    memory_mib = 0.0 if job.exclusive else _memory_mib(request, shape)
    row[0] = (
        job.key.submit_time_s,
        job.start_time_s if runs else np.nan,
        shape.num_gpus,
        shape.split,
        shape.min_nodes,
        shape.max_nodes,
        shape.gpus_per_node,
        cpus / shape.num_gpus,
        memory_mib / shape.num_gpus,
        job.exclusive,
        node_set,
        np.nan if limit is None else limit,
        np.nan,
        EstimateSource.UNKNOWN if limit is None else EstimateSource.TIME_LIMIT,
        nodes.users.setdefault(job.user, len(nodes.users)),
    )
    return row.tobytes()


def _memory_mib(request: ResourceRequest, shape: Shape) -> float:
    if request.memory_mib_per_node is not None:
        return request.memory_mib_per_node * shape.min_nodes
    return (request.memory_mib_per_cpu or 0) * max(request.num_cpus, request.num_tasks)


def _order(job: SlurmJob, ledger: Ledger) -> tuple[int, ...]:
    """Submit time, then id by number: 9 before 10, task 2 before task 11. A requeued job keeps its first submit time."""
    served = ledger.served.get(job.key)
    submit_s = job.key.submit_time_s if served is None else served.first_submit_s
    return (submit_s, *(int(part) for part in re.findall(r"\d+", job.key.job_id)))
