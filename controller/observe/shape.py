"""Shape of a job, by its request to Slurm: how a policy may divide its GPUs.

Slurm accepts one number of GPUs for all nodes of a job, never different numbers. So a request for a total is
offered to policies as an even split wherever that wastes no more than twice the nodes, and as `Split.ANY` (Slurm divides)
only where no even division exists, or none on as few nodes as there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controller.slurm.model.job import ResourceRequest
from policies.model import Split

_UNBOUNDED_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class JobShape:
    """Number of GPUs of a job, and how they may be divided over nodes."""

    num_gpus: int
    split: Split
    min_nodes: int
    max_nodes: int
    gpus_per_node: int
    """GPUs on each node with Split.FIXED; else 0."""


def shape_of(request: ResourceRequest, node_gpus: int) -> JobShape | None:
    """Return the shape of a request on nodes of at most `node_gpus` GPUs; None if it asks for no GPUs, or never fits."""
    if request.gpus_per_node:
        fits = request.gpus_per_node <= node_gpus
        return _fixed(max(request.min_nodes, 1), request.gpus_per_node) if fits else None
    if request.gpus_per_task:
        return _by_task(request, request.gpus_per_task, node_gpus)
    if request.gpus_per_job:
        return _by_total(request, request.gpus_per_job, node_gpus)
    return None


def _fixed(nodes: int, gpus_per_node: int) -> JobShape:
    return JobShape(nodes * gpus_per_node, Split.FIXED, nodes, nodes, gpus_per_node)


def _by_task(request: ResourceRequest, gpus_per_task: int, node_gpus: int) -> JobShape | None:
    """Return the shape whose tasks are spread evenly, on as few nodes as they fit on."""
    most = min(request.max_nodes or request.num_tasks, request.num_tasks)
    # Tasks on a node are few, nodes may be thousands: most tasks first is fewest nodes first.
    for tasks_here in range(min(node_gpus // gpus_per_task, request.num_tasks), 0, -1):
        nodes, rest = divmod(request.num_tasks, tasks_here)
        if rest == 0 and max(request.min_nodes, 1) <= nodes <= most:
            return _fixed(nodes, tasks_here * gpus_per_task)
    return None


def _by_total(request: ResourceRequest, total: int, node_gpus: int) -> JobShape | None:
    if node_gpus <= 0:
        return None
    fewest = max(request.min_nodes, -(-total // node_gpus), 1)
    most = min(request.max_nodes or _UNBOUNDED_NODES, total)
    if fewest > most:
        return None
    even_up_to = min(most, max(2 * fewest, request.min_nodes))
    if not _divides(total, fewest, even_up_to):
        return JobShape(total, Split.ANY, fewest, most, 0)
    return JobShape(total, Split.EVEN, fewest, even_up_to, 0)


def uneven_shape(request: ResourceRequest, shape: JobShape | None) -> JobShape | None:
    """Return the shape of a request that Slurm divides, for one that `shape` offers in equal parts; None for any other."""
    if shape is None or shape.split is not Split.EVEN or not request.gpus_per_job:
        return None
    most = min(request.max_nodes or _UNBOUNDED_NODES, shape.num_gpus)
    return JobShape(shape.num_gpus, Split.ANY, shape.min_nodes, most, 0)


def even_divisions(shape: JobShape) -> Iterator[tuple[int, int]]:
    """Yield nodes, and GPUs on each of them, of every permitted division in equal parts."""
    for here in range(-(-shape.num_gpus // shape.max_nodes), shape.num_gpus // shape.min_nodes + 1):
        nodes, rest = divmod(shape.num_gpus, here)
        if not rest and shape.min_nodes <= nodes <= shape.max_nodes:
            yield nodes, here


def _divides(total: int, fewest: int, most: int) -> bool:
    """Return whether any number of nodes in the range divides the GPUs. GPUs on a node are few, nodes may be thousands."""
    return any(total % here == 0 for here in range(-(-total // most), total // fewest + 1))
