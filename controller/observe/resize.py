"""A user's request with another number of GPUs: the rest of the request changes with it, in the user's own ratios. Pure
functions.

- GPUs by node (--gres, --gpus-per-node, or --gpus with a fixed number of nodes that divides it): a number of whole nodes of the
  user's form, or a part of one. Tasks are counted by node, CPUs by task, memory by node or CPU.
- GPUs in all (--gpus, nodes left open): any number with which the number of tasks is whole.
- GPUs by task: as many tasks as needed. No node gets more tasks than the user's whole request had, because Slurm computes a
  node's limit for such a job only at the submission (BadConstraints; seen on 22.05).

A single task on a node (torchrun, or a script without srun) can get a part of the node, with a part of its CPUs. Several tasks
can only become fewer, each with its GPUs. Every request is computed from the user's first one, so that errors do not add up when
a job is resized twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice

from controller.base.errors import HeadwayError
from controller.observe.shape import shape_of
from controller.observe.user_options import NO_OPTIONS, UserOptions
from controller.slurm.model.job import ResourceRequest, SlurmJob
from controller.state.ledger import Ledger

_SHOWN = 6
_LOOKED_AT = 1000


class ResizeError(HeadwayError):
    """A job cannot have that many GPUs: the text says why, and which numbers are possible."""


def request_now(job: SlurmJob, ledger: Ledger) -> ResourceRequest:
    """Return the request with which the job is placed next, or was placed last: the user's own, in the size that the job was
    given."""
    first = ledger.originals.get(job.key, job.request)
    constraint = ledger.relocations.get(job.key)
    if constraint is None or constraint.gpus is None:
        return first
    return _scaled(first, constraint.gpus) or first


def resized(
    request: ResourceRequest, num_gpus: int, *, node_gpus: int, all_gpus: int, options: UserOptions = NO_OPTIONS
) -> ResourceRequest:
    """Return the user's request for that many GPUs. Raises ResizeError.

    `node_gpus` are those of the largest node, `all_gpus` those of the whole cluster.
    """

    def at(number: int) -> ResourceRequest | None:
        return _in_size(request, number, node_gpus, options) if 1 <= number <= all_gpus else None

    found = at(num_gpus)
    if found is not None:
        return found
    possible = _possible_text(num_gpus, all_gpus, lambda number: at(number) is not None)
    raise ResizeError(f"{_why_not(request, num_gpus, all_gpus, options)}; {possible}")


def _in_size(request: ResourceRequest, number: int, node_gpus: int, options: UserOptions) -> ResourceRequest | None:
    """Return the request for that many GPUs; None if it is not possible."""
    found = _scaled(request, number) if options.allows(number) else None
    return found if found is not None and shape_of(found, node_gpus) is not None else None


def _why_not(request: ResourceRequest, number: int, all_gpus: int, options: UserOptions) -> str:
    if number < 1:
        return f"{number} is not a valid number of GPUs"
    if number > all_gpus:
        return f"the cluster has {all_gpus} GPUs, not {number}"
    if not options.allows(number):
        limits = (("at least", options.min_gpus), ("at most", options.max_gpus))
        allowed = " and ".join(f"{words} {limit}" for words, limit in limits if limit is not None)
        return f"its user allows {allowed} GPUs, not {number}"
    return f"{number} GPUs do not fit its request for {_request_text(request)}"


def _request_text(request: ResourceRequest) -> str:
    """Return the part of the request that prevents this number."""
    if request.gpus_fixed:
        return "GPUs of several types, with other resources, or counted in two ways, which Headway cannot change"
    if request.gpus_per_task:
        return f"{request.gpus_per_task} for each task{_nodes_text(request)}"
    by_node = _gpus_by_node(request)
    if by_node:
        tasks = f" and {request.num_tasks} tasks" if request.num_tasks > max(request.min_nodes, 1) else ""
        return f"{by_node} on each node{tasks}"
    if request.gpus_per_job:
        return f"{request.num_tasks} tasks for {request.gpus_per_job} GPUs{_nodes_text(request)}"
    return "no GPUs"


def _nodes_text(request: ResourceRequest) -> str:
    return "" if request.min_nodes <= 1 and not request.max_nodes else f" on {request.min_nodes} nodes or more"


def _possible_text(wanted: int, all_gpus: int, may: Callable[[int], bool]) -> str:
    """Return the possible sizes nearest to the wanted one. However large the cluster is, a bounded number of sizes is checked."""
    middle = min(max(wanted, 0), all_gpus + 1)
    around = chain.from_iterable((middle - step, middle + step) for step in range(1, all_gpus + 2))
    looked = list(islice((number for number in around if 1 <= number <= all_gpus), _LOOKED_AT))
    possible = list(islice(filter(may, looked), _SHOWN))
    if not possible:
        return "no other number is possible" if len(looked) < _LOOKED_AT else "no number near it is possible"
    nearest = sorted(possible)
    before = "..., " if any(may(number) for number in looked if number < nearest[0]) else ""
    after = ", ..." if any(may(number) for number in looked if number > nearest[-1]) else ""
    return f"possible: {before}{', '.join(map(str, nearest))}{after}"


# --- one function for each form of request


def _scaled(request: ResourceRequest, number: int) -> ResourceRequest | None:
    """Return the request for that many GPUs; None if the user's ratios give no whole numbers."""
    if request.gpus_fixed:
        return None
    if request.gpus_per_task:
        found = _by_task(request, request.gpus_per_task, number)
    elif by_node := _gpus_by_node(request):
        found = _by_node(request, by_node, number)
    elif request.gpus_per_job:
        found = _by_total(request, request.gpus_per_job, number)
    else:
        return None
    if found is not None and request.required_nodes and found.min_nodes > len(request.required_nodes):
        return None  # --nodelist names all the nodes that it may use
    return found


def _gpus_by_node(request: ResourceRequest) -> int | None:
    """Return the GPUs on each of the user's nodes; None if the user leaves the division open, or it is uneven."""
    if request.gpus_per_node:
        return request.gpus_per_node
    nodes = request.min_nodes
    if request.gpus_per_job and nodes and nodes == request.max_nodes and request.gpus_per_job % nodes == 0:
        return request.gpus_per_job // nodes
    return None


def _by_node(request: ResourceRequest, by_node: int, number: int) -> ResourceRequest | None:
    nodes, rest = divmod(number, by_node)
    drawn = max(request.min_nodes, 1)
    tasks_here, uneven = divmod(request.num_tasks, drawn)
    if request.num_tasks < drawn:  # the user named none; Slurm makes one of each node
        tasks_here, uneven = 1, 0
    total = number if request.gpus_per_job else None
    if nodes == drawn and not rest:
        return request
    if uneven:
        return None
    if nodes and not rest:
        return _with_tasks(request, nodes * tasks_here, min_nodes=nodes, max_nodes=nodes, gpus_per_job=total)
    return _part_of_a_node(request, tasks_here, by_node, number, total) if not nodes else None


def _part_of_a_node(
    request: ResourceRequest, tasks_here: int, by_node: int, number: int, total: int | None
) -> ResourceRequest | None:
    """Return the request on one node, with fewer GPUs than the user wanted on each."""
    tasks, uneven = divmod(tasks_here * number, by_node)
    cpus_per_task = _cpus_per_task(request)
    if tasks_here == 1:
        tasks, uneven = 1, 0
        cpus_per_task = _part(cpus_per_task, number, by_node)
    if uneven:
        return None
    made = _with_tasks(request, tasks, cpus_per_task, min_nodes=1, max_nodes=1, gpus_per_job=total)
    return replace(
        made,
        gpus_per_node=number if request.gpus_per_node else None,
        memory_mib_per_node=_less(request.memory_mib_per_node, number, by_node),
        tasks_per_node=tasks if request.tasks_per_node else None,
    )


def _by_total(request: ResourceRequest, total: int, number: int) -> ResourceRequest | None:
    if number == total:
        return request
    tasks, uneven = divmod(request.num_tasks * number, total)
    cpus_per_task = _cpus_per_task(request)
    if request.num_tasks == 1:
        tasks, uneven = 1, 0
        cpus_per_task = _part(cpus_per_task, min(number, total), total)
    least, most = _node_range(request, number / total)
    if uneven or least > number:
        return None
    return _with_tasks(request, tasks, cpus_per_task, min_nodes=least, max_nodes=most, gpus_per_job=number)


def _by_task(request: ResourceRequest, gpus_per_task: int, number: int) -> ResourceRequest | None:
    tasks, uneven = divmod(number, gpus_per_task)
    if uneven or not tasks:
        return None
    here = _tasks_by_node(request)
    if here is None:
        least, most = _node_range(request, tasks / request.num_tasks)
        least = max(min(least, tasks), -(-tasks // request.num_tasks))
        return _with_tasks(request, tasks, min_nodes=least, max_nodes=most and max(most, least))
    if tasks < here:
        made = _with_tasks(request, tasks, min_nodes=1, max_nodes=1)
        return replace(made, tasks_per_node=tasks if request.tasks_per_node else None)
    nodes, uneven = divmod(tasks, here)
    open_ended = request.tasks_per_node is not None and request.max_nodes == 0
    return None if uneven else _with_tasks(request, tasks, min_nodes=nodes, max_nodes=0 if open_ended else nodes)


def _tasks_by_node(request: ResourceRequest) -> int | None:
    """Return the tasks on each of the user's nodes; None if the user leaves the division open, or it is uneven."""
    if request.tasks_per_node:
        return request.tasks_per_node
    nodes = request.min_nodes
    if nodes == request.max_nodes and nodes and request.num_tasks % nodes == 0:
        return request.num_tasks // nodes
    return None


def _node_range(request: ResourceRequest, ratio: float) -> tuple[int, int]:
    """Return the least and most nodes when everything is larger by that ratio; an open upper end stays open."""
    least = max(math.floor(request.min_nodes * ratio), 1) if request.min_nodes > 1 else 1
    return least, max(math.ceil(request.max_nodes * ratio), least) if request.max_nodes else 0


def _cpus_per_task(request: ResourceRequest) -> int:
    return request.cpus_per_task or max(-(-request.num_cpus // max(request.num_tasks, 1)), 1)


def _with_tasks(
    request: ResourceRequest, tasks: int, cpus_per_task: int | None = None, **changes: int | None
) -> ResourceRequest:
    """Return the request with so many tasks, and CPUs for them."""
    each = cpus_per_task or _cpus_per_task(request)
    known = each if request.cpus_per_task is not None else None
    return replace(request, num_tasks=tasks, num_cpus=tasks * each, cpus_per_task=known, **changes)  # type: ignore[arg-type]


def _less(amount: int | None, number: int, of: int) -> int | None:
    return None if amount is None else _part(amount, number, of)


def _part(amount: int, number: int, of: int) -> int:
    """Return that share of the amount, at least one."""
    return max(-(-amount * number // of), 1)
