"""Binding a held job to nodes, and undoing it, in the words of scontrol update; every change is read back."""

from __future__ import annotations

from dataclasses import replace

from controller.slurm.client import Phase, Pin, ResourceRequest
from controller.slurm.embedded import commands
from controller.slurm.embedded.job import Job
from controller.slurm.embedded.slurmctld import Slurmctld

_NOT_SHOWN = "Slurm accepted the change, but the job does not show it"


def pin(ctld: Slurmctld, job: Job, order: Pin) -> str | None:
    """Change the request so that Slurm has no choice left; None, or why it did not work."""
    if error := _cannot_change(job) or _cannot_divide(ctld, order):
        return error
    count = len(order.nodes)
    changes = _gpu_changes(order.original, order.gpus_per_node) | {
        "NumNodes": f"{count}-{count}",
        "NumTasks": str(max(order.original.num_tasks, count)),
        "NumCPUs": str(max(order.original.num_cpus, count)),
        "ReqNodeList": ",".join(order.nodes),
        "StartTime": "now",
    }
    return commands.update(ctld, job, changes) or (None if _is_pinned(job, order) else _NOT_SHOWN)


def unpin(ctld: Slurmctld, job: Job, original: ResourceRequest) -> str | None:
    """Give the job its own request back.

    Slurm cannot forget a maximum of nodes: a job that had none gets the partition's size, or, where the number of nodes is
    fixed by its GPUs per node, its minimum.
    """
    if error := _cannot_change(job):
        return error
    most = original.max_nodes or (original.min_nodes if original.gpus_per_node is not None else len(ctld.nodes))
    changes = _gpu_changes(original, None) | {
        "NumNodes": f"{original.min_nodes}-{most}",
        "NumTasks": str(original.num_tasks),
        "NumCPUs": str(original.num_cpus),
        "ReqNodeList": ",".join(original.required_nodes),
        "ExcNodeList": ",".join(original.excluded_nodes),
    }
    refusal = commands.update(ctld, job, changes)
    same = replace(job.request, max_nodes=0) == replace(original, max_nodes=0)
    return refusal or (None if same else _NOT_SHOWN)


def _cannot_change(job: Job) -> str:
    if job.phase is not Phase.PENDING:
        return commands.NOT_PENDING
    return "" if job.held else "the job is not held: it could start while its request is being changed"


def _cannot_divide(ctld: Slurmctld, order: Pin) -> str:
    """Slurm gives the first node as many tasks as fit, so that only some divisions of a --gpus-per-task job can be ordered."""
    request, count = order.original, len(order.nodes)
    if request.gpus_per_task is None or order.gpus_per_node is None or count == 1:
        return ""
    even = order.gpus_per_node * count == request.gpus_per_task * max(request.num_tasks, count)
    full = all(node in ctld.nodes and ctld.nodes[node].gpus == order.gpus_per_node for node in order.nodes)
    if even and (full or order.gpus_per_node == request.gpus_per_task):
        return ""
    return "Slurm decides how the tasks of a --gpus-per-task job are divided: pin it without gpus_per_node"


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


def _is_pinned(job: Job, order: Pin) -> bool:
    request, count = job.request, len(order.nodes)
    fixed = request.min_nodes == request.max_nodes == count and set(request.required_nodes) == set(order.nodes)
    if order.gpus_per_node is None or request.gpus_per_task is not None:
        return fixed
    return fixed and request.gpus_per_node == order.gpus_per_node and request.gpus_per_job is None
