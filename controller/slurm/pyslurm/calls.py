"""Calls of pyslurm 25.11 in Headway's terms. They run in a process of their own: see `process`.

Written for pyslurm 25.11.2. Its pitfalls (what remains different from the command line is in docs/operations.md, "Clients"):
- It keeps Python's lock while it waits for slurmctld, so no thread can run beside a call, and no deadline ends one.
- `Job.tres_per_job` and `tres_per_node` are None for Slurm's own "gres/gpu:4". Only the sum in `requested_tres` shows --gpus,
  and only when AccountingStorageTRES has gres/gpu.
- `JobSubmitDescription` cannot change a number of nodes, and an empty text changes nothing, so nothing can be cleared.
- The sum does not tell --gpus from --tres-per-task, nor, but for the number of sockets, from --gpus-per-socket.
- `dependencies` leaves out "singleton(unfulfilled)", and keeps "(unfulfilled)" in the ids of jobs.
- A job without a time limit has an end time a year ahead, where scontrol shows none.
- It does not distinguish zero from "not set", also for array task 0; a task of an array that is not split off has no id of its
  own.
- `Job.send_signal` reads errno after successful calls too, so it is not used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.slurm.hostlist import cpu_count, expand_indices, expand_nodes, gpu_mask
from controller.slurm.model.cluster import SlurmNode, SlurmPartition, SlurmReservation
from controller.slurm.model.job import JobKey, NodeShare, Phase, ResourceRequest, SlurmJob, is_held
from controller.slurm.pyslurm.errors import is_unknown_job
from controller.slurm.records import JobRecord
from controller.slurm.scontrol import values
from controller.slurm.scontrol.parse import phase_of
from controller.slurm.scontrol.parse_nodes import node_is_available, not_usable_yet
from controller.slurm.scontrol.parse_request import gpu_request


@dataclass(frozen=True, slots=True)
class Order:
    """One change of one job, as pyslurm can make it."""

    raw_id: int
    release: bool = False
    changes: tuple[tuple[str, object], ...] = ()
    """Attributes of JobSubmitDescription."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything except the jobs."""

    nodes: tuple[SlurmNode, ...]
    partitions: tuple[SlurmPartition, ...]
    reservations: tuple[SlurmReservation, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since the reading before: thousands of unchanged jobs need not go through a pipe."""

    raw_ids: tuple[int, ...]
    """Numbers of all present records, in order."""
    records: tuple[JobRecord, ...]
    """Records that are new or different."""
    cluster: Cluster | None
    """None: nothing has changed."""


class PySlurmCalls:
    """Calls into the pyslurm module that it is given."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._sent: dict[int, JobRecord] = {}
        """Records of the last reading by number. Bound: the jobs of one reading."""
        self._cluster: Cluster | None = None

    def changes(self, whole: bool = False) -> Changes:
        """Read everything, and return what is new. `whole`: return everything, because the last answer may not have arrived."""
        if whole:
            self._sent, self._cluster = {}, None
        records = {record.raw_id: record for record in self._jobs()}
        new = tuple(record for record in records.values() if self._sent.get(record.raw_id) != record)
        cluster = self._read_cluster()
        sent = None if cluster == self._cluster else cluster
        self._sent, self._cluster = records, cluster
        return Changes(tuple(records), new, sent)

    def _jobs(self) -> list[JobRecord]:
        return [job_record(job) for job in self._pyslurm.Jobs.load().values()]

    def _read_cluster(self) -> Cluster:
        pyslurm = self._pyslurm
        return Cluster(
            tuple(_node(node) for node in pyslurm.Nodes.load().values()),
            tuple(_partition(partition) for partition in pyslurm.Partitions.load().values()),
            tuple(_reservation(reservation) for reservation in pyslurm.Reservations.load().values()),
        )

    def read(self, raw_ids: Iterable[int]) -> list[JobRecord]:
        """Return these jobs; those that slurmctld does not know are left out."""
        records = []
        for raw_id in raw_ids:
            try:
                record = job_record(self._pyslurm.Job.load(raw_id))
            except self._pyslurm.RPCError as error:
                if not is_unknown_job(error):
                    raise
            else:
                # For the first task of an array slurmctld returns all tasks, and pyslurm keeps any one of them.
                records += (
                    [record] if record.raw_id == raw_id else [one for one in self._jobs() if one.raw_id == raw_id]
                )
        return records

    def carry_out(self, orders: Iterable[Order]) -> dict[int, str]:
        """Change jobs. Returns slurmctld's error messages, by job."""
        complaints = {}
        for order in orders:
            try:
                self._carry_out(order)
            except self._pyslurm.RPCError as error:
                complaints[order.raw_id] = str(error)
        return complaints

    def _carry_out(self, order: Order) -> None:
        job = self._pyslurm.Job(order.raw_id)
        if order.release:
            job.release()
        if order.changes:
            job.modify(self._pyslurm.JobSubmitDescription(**dict(order.changes)))

    def requeue(self, raw_id: int) -> tuple[JobRecord | None, JobRecord | None, str]:
        """Requeue and hold the job. Returns it before and after, and slurmctld's error message."""
        before = self.read([raw_id])
        complaint = ""
        try:
            self._pyslurm.Job(raw_id).requeue(hold=True)
        except self._pyslurm.RPCError as error:
            complaint = str(error)
        after = self.read([raw_id])
        return (before[0] if before else None, after[0] if after else None, complaint)


def job_record(job: Any) -> JobRecord:
    """Return the record of pyslurm's job, which may contain all waiting tasks of an array."""
    phase = phase_of(job.state, has_nodes=bool(job.allocated_nodes))
    reason = (job.state_reason or "").replace(" ", "_")
    gpus = _gpus(job)
    admin_comment, exact = _text(job, "admin_comment")
    seen = SlurmJob(
        key=JobKey(str(job.id), int(job.submit_time or 0)),
        user=_text(job, "user_name")[0],
        name=_text(job, "name")[0],
        partition=job.partition or "",
        phase=phase,
        state=job.state,
        reason=reason,
        held=is_held(job.priority == 0, phase, reason),
        admin_comment=admin_comment,
        comment=_text(job, "comment")[0],
        request=_request(job, gpus),
        allocated=_shares(job, phase),
        batch=bool(job.is_batch_job),
        requeue=bool(job.is_requeueable),
        restarts=job.requeue_count or 0,
        eligible_time_s=_seconds(job.eligible_time),
        start_time_s=None if phase is Phase.PENDING else _seconds(job.start_time),
        end_time_s=None if phase is Phase.PENDING else _end_s(job, phase),
        time_limit_s=None if job.time_limit is None else job.time_limit * 60.0,
        features=",".join(job.constraints),
        reservation=job.reservation or "",
        account=_text(job, "account")[0],
        qos=job.qos or "",
        dependency=_dependency(job.dependencies),
        exclusive=job.resource_sharing == "NO",
        licenses=",".join(job.licenses),
        array_job_id=job.array_id,
        het_job_id=job.heterogeneous_id,
        raw_id=int(job.id),
        nice=int(getattr(job, "nice", None) or 0),
        user_id=getattr(job, "user_id", None),
        latest_start_s=_latest_start_s(job) if phase is Phase.PENDING else None,
        by_topology=_by_topology(job),
        array_throttle=int(getattr(job, "array_tasks_parallel", None) or 0),
    )
    jobs = tuple(_with_key(seen, key) for key in _keys(job, seen.key, phase))
    shows_bound = seen.restarts == 0 or job.max_nodes is not None
    return JobRecord(job.id, jobs, exact, shows_bound, gpus.mixed, gpus.prefix, gpus.by_index)


def _text(job: Any, name: str) -> tuple[str, bool]:
    """Return a text of the job, and whether it is as Slurm has it: pyslurm fails on bytes that are no UTF-8, here \\xe9."""
    try:
        return getattr(job, name) or "", True
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace"), False


def _latest_start_s(job: Any) -> float | None:
    """Return the latest start with which a job keeps its deadline, by its minimum time limit, or else by its time limit."""
    deadline_s = _seconds(getattr(job, "deadline", None) or None)
    least_min = getattr(job, "time_limit_min", None) or job.time_limit or 0
    return None if deadline_s is None else deadline_s - least_min * 60.0


def _by_topology(job: Any) -> str:
    """Return the option by which the job asks for nodes near each other, as far as pyslurm passes it on."""
    switches = getattr(job, "required_switches", None)
    return f"--switches={switches}" if switches else ""


def _keys(job: Any, key: JobKey, phase: Phase) -> list[JobKey]:
    if job.array_id is None:
        return [key]
    if job.array_tasks_waiting:
        tasks = expand_indices(job.array_tasks_waiting)
    elif job.array_task_id is not None:
        tasks = (job.array_task_id,)
    elif phase is Phase.ENDED and job.id == job.array_id:
        return [key]  # an array that was cancelled before it was split, or its task 0: ended either way
    else:
        tasks = (0,)
    return [JobKey(f"{job.array_id}_{task}", key.submit_time_s) for task in tasks]


def _with_key(job: SlurmJob, key: JobKey) -> SlurmJob:
    if job.key == key:
        return job
    return SlurmJob(key, *[getattr(job, name) for name in SlurmJob.__slots__[1:]])


def _gpus(job: Any) -> Any:
    """Return the request for GPUs, from Slurm's texts as far as pyslurm passes them on, else from the sum."""
    per_node = _gres_text(job.gres_per_node)
    per_job, per_task = _tres_text(job.tres_per_job), _tres_text(job.tres_per_task)
    if not any(values.gpus(text).count for text in (per_node, per_job, per_task)) and not _is_by_socket(job):
        per_job = _sum_text(job.requested_tres)
    return gpu_request(per_job, per_node, per_task)


def _is_by_socket(job: Any) -> bool:
    """Return whether the GPUs are requested by socket: Slurm takes --gpus-per-socket only with a number of sockets."""
    return bool(getattr(job, "sockets_per_node", None))


def _has_memory_by_gpu(job: Any) -> bool:
    """Return whether --mem-per-gpu was given. pyslurm expects "gres:gpu:1024" there, and fails on Slurm's "gres/gpu:1024"."""
    try:
        return getattr(job, "memory_per_gpu", None) is not None
    except (IndexError, ValueError):
        return True


def _gres_text(gres: Mapping[str, object]) -> str:
    return ",".join(f"{name}:{count}" for name, count in (gres or {}).items())


def _tres_text(tres: Any) -> str:
    if tres is None:
        return ""
    return ",".join(f"gres/{name}:{gres.count}" for name, gres in tres.gres.items())


def _sum_text(tres: Any) -> str:
    """Return the sum of GPUs as text. Accounting counts a GPU with a type twice: with the type and without."""
    found = {} if tres is None else {name: gres.count for name, gres in tres.gres.items() if name.startswith("gpu")}
    typed = [name for name in found if ":" in name]
    if len(typed) == 1 and found[typed[0]] == found.get("gpu", found[typed[0]]):
        return f"gres/{typed[0]}:{found[typed[0]]}"
    return f"gres/gpu:{found['gpu']}" if "gpu" in found else ""


def _request(job: Any, gpus: Any) -> ResourceRequest:
    per_node, per_job, per_task = gpus.per_node, gpus.per_job, gpus.per_task
    counted = sum(map(bool, (per_node, per_job, per_task)))
    if per_task or per_node:
        per_job = None
    by_gpu = _has_memory_by_gpu(job)  # scontrol shows such a job without memory of nodes and CPUs
    return ResourceRequest(
        min_nodes=job.num_nodes or 1,
        max_nodes=job.max_nodes or 0,
        num_tasks=job.ntasks or 1,
        num_cpus=job.cpus or 1,
        gpus_per_node=per_node,
        gpus_per_job=per_job,
        gpus_per_task=None if per_node else per_task,
        gpu_type=gpus.type,
        memory_mib_per_node=None if by_gpu else job.memory_per_node,
        memory_mib_per_cpu=None if by_gpu else job.memory_per_cpu,
        required_nodes=expand_nodes(job.required_nodes or ""),
        excluded_nodes=expand_nodes(job.excluded_nodes or ""),
        tasks_per_node=job.ntasks_per_node,
        cpus_per_task=getattr(job, "cpus_per_task", None) or None,
        gpus_fixed=gpus.mixed or counted > 1,
        max_nodes_in_doubt=bool(per_job or per_task) and not per_node and job.max_nodes == 1 and job.state == "PENDING",
    )


def _shares(job: Any, phase: Phase) -> tuple[NodeShare, ...]:
    nodes = expand_nodes(job.allocated_nodes or "")
    if not phase.occupies_nodes or not nodes:
        return ()
    allocated = {} if phase is Phase.COMPLETING else job.get_resource_layout_per_node()
    if allocated:
        return tuple(_share(name, resources) for name, resources in allocated.items())
    total = values.gpus(_sum_text(job.allocated_tres)).count
    return tuple(NodeShare(name, -(-total // len(nodes)), 0, -(-(job.cpus or 0) // len(nodes)), 0) for name in nodes)


def _share(name: str, resources: Mapping[str, Any]) -> NodeShare:
    total = mask = 0
    for gres, amount in resources["gres"].items():
        if gres.partition(":")[0] != "gpu":
            continue
        total += amount["count"] if isinstance(amount, dict) else amount
        indices = amount["indexes"] if isinstance(amount, dict) else ""
        mask |= gpu_mask(indices if indices and indices[0].isdigit() else "")
    cpus, memory_mib = cpu_count(resources["cpu_ids"] or ""), resources["memory"] or 0
    return NodeShare(name, total, mask if mask.bit_count() == total else 0, cpus, memory_mib)


def _dependency(dependencies: Mapping[str, Any] | None) -> str:
    """Return the dependencies in Slurm's words: "afterany:1(unfulfilled),afterany:2(unfulfilled)".

    Where there are some, and pyslurm names none, it has left out the only one: "singleton(unfulfilled)".
    """
    if not dependencies:
        return ""
    conditions = [
        f"{kind}:{job}" for kind, jobs in dependencies.items() if isinstance(jobs, list) and jobs for job in jobs
    ]
    if dependencies.get("singleton") or not conditions:
        conditions.append("singleton")
    return ("?" if dependencies.get("satisfy") == "any" else ",").join(conditions)


def _end_s(job: Any, phase: Phase) -> float | None:
    """Return the end of the run; None while it runs without a time limit."""
    unlimited = job.time_limit is None and phase is not Phase.ENDED
    return None if unlimited and (job.end_time or 0) > time.time() else _seconds(job.end_time)


def _seconds(timestamp: int | None) -> float | None:
    return None if timestamp is None else float(timestamp)


def _node(node: Any) -> SlurmNode:
    gres = _gres_text(node.configured_gres)
    gpus = values.gpus(gres)
    not_yet = not_usable_yet(node.state, registered=bool(node.slurmd_start_time))
    return SlurmNode(
        name=node.name,
        state=node.state,
        available=not not_yet and node_is_available(node.state),
        gpus=gpus.count,
        gpu_type=gpus.type,
        cpus=node.effective_cpus or node.total_cpus,
        memory_mib=max((node.real_memory or 0) - (node.memory_reserved_for_system or 0), 0),
        features=frozenset(node.active_features),
        partitions=frozenset(node.partitions),
        reason=node.reason or not_yet,
        address=getattr(node, "address", None) or "",
        gpus_by_type=values.gpus_by_type(gres),
    )


def _partition(partition: Any) -> SlurmPartition:
    minutes = partition.max_time
    return SlurmPartition(
        name=partition.name,
        nodes=frozenset(expand_nodes(partition.nodes or "")),
        up=partition.state == "UP",
        max_time_s=minutes * 60.0 if isinstance(minutes, int) else None,
        priority_tier=int(getattr(partition, "priority_tier", None) or 1),
        priority_job_factor=int(getattr(partition, "priority_job_factor", None) or 1),
        preempt_mode=str(getattr(partition, "preempt_mode", None) or ""),
        grace_s=float(getattr(partition, "preemption_grace_time", None) or 0.0),
        min_nodes=_number(getattr(partition, "min_nodes", None)) or 0,
        max_nodes=_number(getattr(partition, "max_nodes", None)),
    )


def _number(value: Any) -> int | None:
    """Return a limit; None where pyslurm says that there is none ("UNLIMITED")."""
    return value if isinstance(value, int) else None


def _reservation(reservation: Any) -> SlurmReservation:
    return SlurmReservation(
        name=reservation.name,
        nodes=frozenset(expand_nodes(reservation.nodes or "")),
        start_time_s=float(reservation.start_time or 0),
        end_time_s=float(reservation.end_time or time.time()),
        magnetic=_is_magnetic(getattr(reservation, "flags", None)),
        users=frozenset(getattr(reservation, "users", None) or ()),
        accounts=frozenset(getattr(reservation, "accounts", None) or ()),
    )


def _is_magnetic(flags: Any) -> bool:
    """Return whether MAGNETIC is among the flags, an `enum.Flag` of pyslurm's; False where this pyslurm has no such flag."""
    flag = getattr(type(flags), "MAGNETIC", None)
    return flag is not None and flag in flags
