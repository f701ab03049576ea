"""Numbers of GPUs among which a policy that resizes may choose for a job. Pure functions.

Users give the limits in the job's comment (min-gpus, max-gpus). A range is offered only where every number in it, divided evenly
among any number of nodes, is a request that Slurm accepts: so a policy needs to know nothing but the range. This holds for jobs
that ask for a total (--gpus) and leave the nodes open, with one task for each GPU or one task in all. All other jobs have a fixed
size for policies; operators can resize them too (`headway resize`), but not those that only Slurm can place (`job_row`).
"""

from __future__ import annotations

from dataclasses import replace

from controller.observe.shape import JobShape
from controller.observe.user_options import UserOptions
from controller.slurm.model.job import ResourceRequest
from policies.model import Split


def elastic_shape(
    request: ResourceRequest, shape: JobShape, options: UserOptions, all_gpus: int
) -> tuple[JobShape, int, int]:
    """Return the shape that policies see, and the minimum and maximum number of GPUs.

    `request` is the user's own, `shape` that of the present size. For a job of fixed size the shape is unchanged, and both numbers
    are its own.
    """
    fixed = shape, shape.num_gpus, shape.num_gpus
    total = request.gpus_per_job
    if not options.elastic or not total or not _is_open(request, total):
        return fixed
    # Without a limit of the user's, what the job asks for is the most.
    most = min(options.max_gpus or total, all_gpus)
    least = min(options.min_gpus or 1, total)
    if not least <= shape.num_gpus <= most:
        return fixed
    return replace(shape, split=Split.EVEN, min_nodes=1, max_nodes=most, gpus_per_node=0), least, most


def _is_open(request: ResourceRequest, total: int) -> bool:
    """Return whether any number of GPUs can be divided among any number of nodes."""
    by_total = not (request.gpus_fixed or request.gpus_per_node or request.gpus_per_task or request.tasks_per_node)
    nodes = request.min_nodes <= 1 and not request.max_nodes and not request.required_nodes
    return by_total and nodes and request.num_tasks in {1, total}
