"""Turns the fields of a job's record into its request for nodes, tasks, CPUs, memory and GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from controller.slurm.hostlist import expand_nodes
from controller.slurm.model.job import ResourceRequest
from controller.slurm.records import MANY_NODES, NEWER_GRES, OLDER_GRES
from controller.slurm.scontrol import values

_TRES_NODES = re.compile(r"(?:\A|,)node=(\d+)")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs that a job asks for, in each unit in which it counts them."""

    per_job: int | None = None
    per_node: int | None = None
    per_task: int | None = None
    type: str = ""
    per_socket: int | None = None
    mixed: bool = False
    """GPUs of several types, or other generic resources beside them."""
    prefix: str = OLDER_GRES
    by_index: tuple[tuple[int, int], ...] = ()
    """Index and number of each GPU, by node or else by job, where all types are indices."""


_NO_GPUS = GpuRequest()
_TRES = re.compile(r" (TresPerJob|TresPerNode|TresPerTask|TresPerSocket)=(\S+)")


_BY_TOPOLOGY = re.compile(r" (Switches|SegmentSize)=(\d{1,9})(?=[@ ]|\Z)")
_OPTIONS = {"Switches": "--switches", "SegmentSize": "--segment"}


def topology_requested(tail: str) -> str:
    """Return the option by which the job asks for nodes near each other; empty if it has none. Slurm prints it behind the paths."""
    begin, end = max(tail.rfind(" StdOut="), 0), after_paths(tail)[1]
    found = _BY_TOPOLOGY.search(tail, begin, end)
    return f"{_OPTIONS[found[1]]}={found[2]}" if found else ""


def after_paths(tail: str) -> tuple[int, int]:
    """Return begin and end of the part after the last path and before the mail address."""
    begin = max(tail.rfind(" StdOut="), tail.rfind(" Power="), 0)
    end = tail.find(" MailUser=", begin)
    return begin, len(tail) if end < 0 else end


def gpus_requested(tail: str) -> GpuRequest:
    """Return the requested GPUs."""
    found: dict[str, str] = {}
    for key, text in _TRES.findall(tail, *after_paths(tail)):
        found.setdefault(key, text)
    return gpu_request(*(found.get(f"TresPer{unit}", "") for unit in ("Job", "Node", "Task", "Socket")))


@lru_cache(maxsize=4096)
def gpu_request(per_job: str, per_node: str, per_task: str, per_socket: str = "") -> GpuRequest:
    """Return the request for GPUs by Slurm's texts, such as "gres:gpu:a100:4", "gres/gpu:4", "cpu=2,gres/gpu=1"."""
    if not (per_job or per_node or per_task or per_socket):
        return _NO_GPUS
    job, node, task = (values.gpus(text) for text in (per_job, per_node, per_task))
    types = {gpus.type for gpus in (job, node, task) if gpus.count}
    return GpuRequest(
        per_job=job.count or None,
        per_node=node.count or None,
        per_task=task.count or None,
        per_socket=values.gpus(per_socket).count or None,
        type=types.pop() if len(types) == 1 else "",
        # GPUs by task are never rewritten, so other resources beside them do no harm.
        mixed=any(gpus.others or gpus.several_types for gpus in (job, node)),
        prefix=NEWER_GRES if NEWER_GRES in per_job + per_node + per_task else OLDER_GRES,
        by_index=values.gpus_by_index(per_node or per_job) if not (per_task or per_socket) else (),
    )


def resources_requested(fields: dict[str, str], gpus: GpuRequest) -> ResourceRequest:
    """Return the whole request. Raises KeyError, ValueError and SlurmReplyError for fields that are missing or not understood."""
    tasks = fields.get("NumTasks", "N/A")
    num_tasks = 1 if tasks == "N/A" else values.count(tasks)
    tasks_per_node = _tasks_per_node(fields)
    min_nodes, max_nodes = _node_range(fields, gpus.per_job)
    if tasks_per_node:
        min_nodes = max(min_nodes, -(-num_tasks // tasks_per_node))
    per_node, per_job, per_task = gpus.per_node, gpus.per_job, gpus.per_task
    if per_task and tasks_per_node and tasks_per_node >= num_tasks:
        tasks_per_node = None  # a maximum that bounds nothing, as Headway leaves it where it cannot be taken back
    if per_node and per_job:
        # --gpus with --gpus-per-node: together they say how many nodes.
        min_nodes = max_nodes = max(per_job // per_node, 1)
        per_job = None
    elif per_task and per_job:
        per_job = None
    return _intern(
        min_nodes,
        max_nodes,
        num_tasks,
        values.span(fields["NumCPUs"])[0],
        per_node,
        per_job,
        per_task if not per_node else None,
        gpus.type,
        values.size_mib(fields["MinMemoryNode"]) if "MinMemoryNode" in fields else None,
        values.size_mib(fields["MinMemoryCPU"]) if "MinMemoryCPU" in fields else None,
        expand_nodes(fields.get("ReqNodeList", "")),
        expand_nodes(fields.get("ExcNodeList", "")),
        tasks_per_node,
        _cpus_per_task(fields),
        gpus.mixed or sum(map(bool, (gpus.per_node, gpus.per_job, gpus.per_task))) > 1,
        gpus.per_socket,
        _is_bound_in_doubt(fields, gpus, max_nodes),
    )


@lru_cache(maxsize=16384)
def _intern(*parts: object) -> ResourceRequest:
    """Return one object for all equal requests: thousands of jobs have the same few."""
    return ResourceRequest(*parts)  # type: ignore[arg-type]


def _node_range(fields: dict[str, str], gpus_per_job: int | None) -> tuple[int, int]:
    """Return the least and most nodes.

    scontrol derives the least number in NumNodes= from the tasks; the number that Slurm uses is in the TRES. An
    upper bound that no cluster reaches is none; Slurm shows it as the number of GPUs of a --gpus job.
    """
    least, most = values.span(fields["NumNodes"])
    requested = _TRES_NODES.search(fields.get("ReqTRES") or fields.get("TRES") or "")
    least = values.whole(requested[1]) if requested else least
    unbounded = most >= MANY_NODES or (gpus_per_job is not None and most >= gpus_per_job and most > least)
    return least, 0 if unbounded else most


def _is_bound_in_doubt(fields: dict[str, str], gpus: GpuRequest, max_nodes: int) -> bool:
    """Return whether the maximum of one node may be none. ReqTRES= is in the records of the releases that show it so."""
    by_total = bool(gpus.per_job or gpus.per_task) and not gpus.per_node
    return by_total and max_nodes == 1 and "ReqTRES" in fields and fields["JobState"] == "PENDING"


def _cpus_per_task(fields: dict[str, str]) -> int | None:
    text = fields.get("CPUs/Task", "")
    return (values.whole(text) or None) if text.isdecimal() else None


def _tasks_per_node(fields: dict[str, str]) -> int | None:
    text = fields.get("NtasksPerN:B:S:C", "0").partition(":")[0]
    return (values.whole(text) or None) if text.isdecimal() else None
