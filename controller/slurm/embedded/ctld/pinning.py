"""Binding a held job to nodes, and undoing it, with the words of scontrol update; every change is read back."""

from __future__ import annotations

from dataclasses import replace

from controller.slurm.client import Pin
from controller.slurm.embedded.ctld import commands
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.embedded.ctld.slurmctld import Slurmctld
from controller.slurm.model.job import Phase, ResourceRequest
from policies.state.gpu_layout import mask_problem

_NOT_SHOWN = "Slurm accepted the change, but the job does not show it"


def pin(ctld: Slurmctld, job: Job, order: Pin, now_s: float) -> str | None:
    """Change the request so that only these nodes satisfy it. Returns None, or why it failed. `now_s`: by the client's clock."""
    if error := _cannot_change(job) or _contradicts(order) or wrong_gpus(ctld, order):
        return error
    count = len(order.nodes)
    changes = _gpu_changes(order.original, order.gpus_per_node) | {
        "TasksPerNode": str(_tasks_per_node(order) or 0),
        "NumNodes": f"{count}-{count}",
        "NumTasks": str(max(order.original.num_tasks, count)),
        "NumCPUs": str(max(order.original.num_cpus, count)),
        "ReqNodeList": ",".join(order.nodes),
    }
    if job.restarts > 0 and job.eligible_time_s is not None and job.eligible_time_s > now_s + 1:
        changes["StartTime"] = "now"
    if order.resized:
        changes |= _memory_change(job.request, order.original)
    refusal = commands.update(ctld, job, changes) or (None if _is_pinned(job, order) else _NOT_SHOWN)
    job.gpu_masks = {} if refusal else _gpu_masks(order)
    return refusal


def unpin(ctld: Slurmctld, job: Job, original: ResourceRequest) -> str | None:
    """Give the job its own request back.

    Slurm cannot forget a maximum of nodes: a job that had none gets the partition's size, or, where the number of nodes is
    fixed by its GPUs per node, its minimum.
    """
    if error := _cannot_change(job):
        return error
    most = original.max_nodes or (original.min_nodes if original.gpus_per_node is not None else len(ctld.nodes))
    changes = (
        _gpu_changes(original, None)
        | {
            "TasksPerNode": str(original.tasks_per_node or 0),
            "NumNodes": f"{original.min_nodes}-{most}",
            "NumTasks": str(original.num_tasks),
            "NumCPUs": str(original.num_cpus),
            "ReqNodeList": ",".join(original.required_nodes),
            "ExcNodeList": ",".join(original.excluded_nodes),
        }
        | _memory_change(job.request, original)
    )
    refusal = commands.update(ctld, job, changes)
    job.gpu_masks = {}
    same = replace(job.request, max_nodes=0) == replace(original, max_nodes=0)
    return refusal or (None if same else _NOT_SHOWN)


def wrong_gpus(ctld: Slurmctld, order: Pin) -> str:
    """Return what is wrong with the GPUs that the pin names; "" if nothing is."""
    for name, mask in _gpu_masks(order).items():
        node = ctld.nodes.get(name)
        if node is None:
            return f"GPUs of {name!r} are named, which is no node"
        problem = mask_problem(mask, order.gpus_per_node or 0, node.gpus, 0)
        if problem:
            return f"node {name}: {problem}"
    return ""


def _gpu_masks(order: Pin) -> dict[str, int]:
    return {name: mask for name, mask in zip(order.nodes, order.gpu_masks, strict=False) if mask}


def _cannot_change(job: Job) -> str:
    if job.phase is not Phase.PENDING:
        return commands.NOT_PENDING
    return "" if job.held else "the job is not held: it could start while its request is being changed"


def _contradicts(order: Pin) -> str:
    """Return why the pin does not fulfil the user's request; "" when it does."""
    original, count, per_node = order.original, len(order.nodes), order.gpus_per_node
    if not count or len(set(order.nodes)) != count:
        return "not a list of distinct nodes"
    if per_node is None:
        return ""
    if original.gpus_per_node is not None and per_node != original.gpus_per_node:
        return f"the job asks for {original.gpus_per_node} GPUs on each node, not {per_node}"
    total = original.gpus_per_job
    if original.gpus_per_task is not None:
        total = original.gpus_per_task * max(original.num_tasks, count)
    parts = per_node % (original.gpus_per_task or 1)
    if parts or (total is not None and per_node * count != total):
        return f"{per_node} GPUs on each of {count} nodes are not the {total} that the job asks for, in whole tasks"
    if _tasks_per_node(order) != original.tasks_per_node and original.tasks_per_node is not None:
        return f"the job asks for {original.tasks_per_node} tasks on each node"
    return ""


def _tasks_per_node(order: Pin) -> int | None:
    """Return the tasks for each node to request: without a number, Slurm would put 3 and 1 of 4 tasks with GPUs on two nodes."""
    if order.original.gpus_per_task is None or order.gpus_per_node is None:
        return order.original.tasks_per_node
    return order.gpus_per_node // order.original.gpus_per_task


def _gpu_changes(original: ResourceRequest, gpus_per_node: int | None) -> dict[str, str]:
    if original.gpus_per_task is not None:
        return {}
    kind = f":{original.gpu_type}" if original.gpu_type else ""
    per_node = gpus_per_node if gpus_per_node is not None else original.gpus_per_node
    if per_node is not None:
        return {"TresPerJob": "", "TresPerNode": f"gres:gpu{kind}:{per_node}"}
    if original.gpus_per_job is not None:
        return {"TresPerNode": "", "TresPerJob": f"gres:gpu{kind}:{original.gpus_per_job}"}
    return {}


def _memory_change(request: ResourceRequest, wanted: ResourceRequest) -> dict[str, str]:
    memory_mib = wanted.memory_mib_per_node
    return {} if memory_mib == request.memory_mib_per_node else {"MinMemoryNode": str(memory_mib or 0)}


def _is_pinned(job: Job, order: Pin) -> bool:
    request, count = job.request, len(order.nodes)
    fixed = request.min_nodes == request.max_nodes == count and set(request.required_nodes) == set(order.nodes)
    if order.gpus_per_node is None or request.gpus_per_task is not None:
        return fixed
    return fixed and request.gpus_per_node == order.gpus_per_node and request.gpus_per_job is None
