"""Effects of sbatch, scontrol and scancel on the emulated cluster. Each command returns None, or Slurm's error text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from controller.slurm.embedded.ctld.job import DONE_STATES, HELD_BY_ADMIN, HELD_BY_USER, Job, Requeue, Submission
from controller.slurm.embedded.ctld.plugin import SubmitEffect, SubmitPlugin
from controller.slurm.embedded.ctld.slurmctld import REQUEUED, Slurmctld
from controller.slurm.embedded.description import expand_hosts
from controller.slurm.model.job import IMPOSSIBLE, Phase, ResourceRequest

_GRES = re.compile(r"gres[:/]gpu(?::(?P<type>[A-Za-z_][\w-]*))?[:=](?P<count>\d+)")
_NODE_COUNT = re.compile(r"(\d+)(?:-(\d+))?")
_LOST_RESERVATION = "Reservation_"
"""Beginning of the reason of a job that Slurm holds because its reservation is over."""
NOT_PENDING = "Job is no longer pending execution"
INVALID_ID = "Invalid job id specified"
NOT_PERMITTED = "Access/permission denied"


def submit(ctld: Slurmctld, submission: Submission, plugin: SubmitPlugin | None) -> list[Job]:
    """Submit (sbatch); return the job, the tasks of the array, or the components of the heterogeneous job."""
    partition = submission.partition or next(iter(ctld.partitions))
    effect = SubmitEffect(submission.hold, submission.admin_comment)
    if plugin is not None:
        effect = plugin.on_submit(submission, partition, ctld.now_s)
    het = range(submission.het_components)
    first = ctld.issue_ids(max(len(het), 1))
    names = [f"{first}_{task}" for task in submission.array] or [str(first + i) for i in het] or [str(first)]
    jobs = [_record(ctld, submission, effect, partition, name) for name in names]
    for job in jobs:
        job.array_job_id = first if submission.array else None
        job.het_job_id = first if het else None
        job.raw_id = None if submission.array else int(job.job_id)
        ctld.jobs[job.job_id] = job
        ctld.outcomes.pop(job.job_id, None)
    if submission.begin_time_s is not None:
        ctld.kick_at(submission.begin_time_s)
    ctld.kick()
    return jobs


def _record(ctld: Slurmctld, submission: Submission, effect: SubmitEffect, partition: str, name: str) -> Job:
    limits = [ctld.partitions[part].max_time_s for part in partition.split(",")]
    known = [limit for limit in limits if limit is not None]
    begin_s = submission.begin_time_s
    return Job(
        job_id=name,
        submission=submission,
        request=submission.request,
        partition=partition,
        submit_time_s=int(ctld.now_s),
        priority=0 if effect.hold else ctld.next_priority(),
        sequence=ctld.next_number(),
        begin_time_s=begin_s,
        eligible_time_s=begin_s if begin_s is not None and begin_s > ctld.now_s else None,
        time_limit_s=submission.time_limit_s if submission.time_limit_s is not None else max(known, default=None),
        admin_comment=effect.admin_comment,
        requeue=submission.requeue,
        dependency=submission.dependency,
        hold_reason=HELD_BY_USER if effect.hold else "",
        reason=HELD_BY_USER if effect.hold else "None",
    )


def hold(job: Job, by: str = HELD_BY_ADMIN) -> str | None:
    """Hold the job (scontrol hold). A running job keeps running, and is held if it is requeued."""
    if job.phase is Phase.ENDED:
        return NOT_PENDING
    job.priority = 0
    if job.hold_reason != HELD_BY_ADMIN:
        job.hold_reason = by
    if job.phase is Phase.PENDING:
        job.reason = job.hold_reason
    return None


def uhold(job: Job) -> str | None:
    """Hold the job so that its user may release it (scontrol uhold by root or SlurmUser), even after an administrator's hold."""
    if job.hold_reason.startswith(_LOST_RESERVATION):
        return None  # Slurm's own hold keeps its reason (measured on 22.05)
    if job.hold_reason == HELD_BY_ADMIN:
        job.hold_reason = ""
    return hold(job, HELD_BY_USER)


def release(ctld: Slurmctld, job: Job) -> str | None:
    """Release the job (scontrol release); it goes to the end of the queue.

    A running job loses its hold, and one that was requeued while its processes end is not held afterwards (measured on 22.05).
    """
    if job.phase is Phase.ENDED:
        return NOT_PENDING
    if job.after is Requeue.HELD:
        job.after = Requeue.FREE
    if job.held:
        job.priority, job.hold_reason, job.reason = ctld.next_priority(), "", "None"
    ctld.kick()
    return None


def lose_reservation(job: Job) -> None:
    """End the reservation of a pending job: Slurm holds it, unless an administrator does so already (measured on 22.05)."""
    name = job.submission.reservation
    job.submission = replace(job.submission, reservation="")
    if job.hold_reason != HELD_BY_ADMIN:
        job.priority, job.state, job.reason = 0, "RESV_DEL_HOLD", f"{_LOST_RESERVATION}{name}_was_deleted"
        job.hold_reason = job.reason


def requeue(ctld: Slurmctld, job: Job, held: bool) -> str | None:
    """Requeue the job (scontrol requeue and requeuehold). Ended jobs that are still in memory start again, as in Slurm.

    A job that was held while it ran stays held (measured on 22.05, for holds of its user and of an operator).
    """
    if job.phase is Phase.PENDING:
        return "Job is pending execution"
    if not job.requeue or not job.submission.batch:
        return "Requested operation is presently disabled"
    if job.phase is Phase.COMPLETING and job.after is Requeue.NO:
        return "Job can not be altered now, try again later"
    job.restarts += 1
    if held:
        job.priority = 0
    after = Requeue.HELD if job.held else Requeue.FREE
    if job.phase is Phase.ENDED:
        job.after = after
        ctld.back_into_queue(job)
    else:
        ctld.terminate(job, REQUEUED, after)
    return None


def cancel(ctld: Slurmctld, job: Job) -> str | None:
    """Cancel the job (scancel)."""
    if job.phase is Phase.ENDED:
        return "Job/step already completing or completed"
    if job.phase is Phase.PENDING:
        job.start_time_s = ctld.now_s  # its end, also after a requeue (measured on 22.05)
        ctld.end(job, "CANCELLED")
    elif job.phase is not Phase.COMPLETING:
        ctld.terminate(job, "CANCELLED")
    else:
        job.after = Requeue.NO
    return None


def signal(ctld: Slurmctld, job: Job, name: str) -> str | None:
    """Send a signal to the job (scancel --signal --full)."""
    if job.phase is Phase.ENDED or job.state in DONE_STATES:
        return "Job/step already completing or completed"
    if job.phase is not Phase.RUNNING:
        return "Job is pending execution"
    ctld.deliver(job, name.upper().removeprefix("SIG"))
    return None


def update(ctld: Slurmctld, job: Job, changes: Mapping[str, str]) -> str | None:
    """Change the job (scontrol update). As in Slurm, the changes before an error stay in place: read the job again.

    Keys are scontrol's, and are carried out in this order: Requeue, AdminComment, TresPerJob, TresPerNode, TasksPerNode, NumNodes,
    NumTasks, NumCPUs, MinMemoryNode, ExcNodeList, ReqNodeList, StartTime (seconds since the Unix epoch, or "now").
    """
    if job.phase is Phase.ENDED:
        return "Job/step already completing or completed"
    for key in _ORDER:
        if key in changes and (error := _change(ctld, job, key, changes[key])):
            return error
    if job.reason == IMPOSSIBLE and job.held:  # a change makes slurmctld consider it again (seen on 22.05)
        job.priority, job.reason = ctld.next_priority(), "None"
    ctld.kick()
    return None


_ORDER = (
    "Requeue",
    "AdminComment",
    "TresPerJob",
    "TresPerNode",
    "TasksPerNode",
    "NumNodes",
    "NumTasks",
    "NumCPUs",
    "MinMemoryNode",
    "ExcNodeList",
    "ReqNodeList",
    "StartTime",
)


def _change(ctld: Slurmctld, job: Job, key: str, value: str) -> str | None:
    match key:
        case "Requeue":
            job.requeue = value == "1"
            return None
        case "AdminComment":
            job.admin_comment = value
            return None
        case _ if job.phase is not Phase.PENDING:
            return NOT_PENDING
        case "StartTime":
            job.begin_time_s = ctld.now_s if value == "now" else float(value)
            job.eligible_time_s = None if job.begin_time_s <= ctld.now_s else job.begin_time_s
            ctld.kick_at(job.begin_time_s)
            return None
    changed = _changed_request(ctld, job.request, key, value)
    if isinstance(changed, str):
        return changed
    job.request = changed
    return None


def _changed_request(ctld: Slurmctld, request: ResourceRequest, key: str, value: str) -> ResourceRequest | str:
    """Return the request after the change, or the reason why the change is refused."""
    match key:
        case "TresPerJob" | "TresPerNode":
            return _with_gpus(request, value, per_job=key == "TresPerJob")
        case "NumNodes":
            return _with_node_count(request, value)
        case "NumTasks" | "NumCPUs" | "MinMemoryNode":
            return _with_number(request, key, int(value))
        case "TasksPerNode":
            return replace(request, tasks_per_node=int(value) or None)
        case _:
            return _with_node_list(ctld, request, key, value)


def _with_number(request: ResourceRequest, key: str, number: int) -> ResourceRequest:
    if key == "MinMemoryNode":
        return replace(request, memory_mib_per_node=number or None)
    return replace(request, num_tasks=number) if key == "NumTasks" else replace(request, num_cpus=number)


def _with_node_list(ctld: Slurmctld, request: ResourceRequest, key: str, value: str) -> ResourceRequest | str:
    try:
        names = expand_hosts(value)
    except ValueError:
        names = (value,)
    if any(name not in ctld.nodes for name in names):
        return "Invalid node name specified"
    if key == "ExcNodeList":
        return replace(request, excluded_nodes=names)
    if request.max_nodes and len(names) > request.max_nodes:
        return "Node count specification invalid"
    return replace(request, required_nodes=names)


def _with_gpus(request: ResourceRequest, value: str, *, per_job: bool) -> ResourceRequest | str:
    if request.gpus_per_task is not None:
        return "Invalid generic resource (gres) specification"
    match = _GRES.fullmatch(value)
    if value and match is None:
        return request  # without its prefix Slurm shows the value, and ignores it
    count = int(match["count"]) if match else None
    kind = (match["type"] or "") if match else request.gpu_type
    if per_job:
        return replace(request, gpus_per_job=count, gpu_type=kind)
    return replace(request, gpus_per_node=count, gpu_type=kind)


def _with_node_count(request: ResourceRequest, value: str) -> ResourceRequest | str:
    match = _NODE_COUNT.fullmatch(value)
    least, most = (int(match[1]), int(match[2]) if match[2] else request.max_nodes) if match else (0, 0)
    if least < 1 or (most and most < least) or (match and match[2] and not most):
        return "Node count specification invalid"
    tasks = max(request.num_tasks, least)
    cpus = max(request.num_cpus, least)
    return replace(request, min_nodes=least, max_nodes=most, num_tasks=tasks, num_cpus=cpus)
