"""The agent's rows (wire/report.py) as messages to the controller. A value that is None is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nodeagent.saves.coordinator import SaveAnswer
from nodeagent.wire import bounds
from nodeagent.wire.frames import Model, Profile
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.reasons import Reason
from nodeagent.wire.report import CheckpointReport, GpuProcess, GpuReading, JobReport, NicReading, NodeReport, Topology
from protos.headway.v1 import agent_pb2


def topology_message(topology: Topology) -> agent_pb2.NodeTopology:
    """Encode the hardware of the node."""
    return agent_pb2.NodeTopology(
        sockets=topology.sockets,
        cpus=topology.cpus,
        numa_nodes=[
            agent_pb2.NumaNode(index=node.index, cpus=node.cpus, memory_bytes=node.memory_bytes)
            for node in topology.numa_nodes
        ],
        gpus=[
            agent_pb2.GpuDevice(pci_address=gpu.pci_address, index=gpu.index, numa_node=gpu.numa_node)
            for gpu in topology.gpus
        ],
        nics=[
            agent_pb2.NicDevice(
                name=nic.name,
                infiniband=nic.kind == "infiniband",
                speed_bits_per_s=nic.speed_bits_per_s,
                numa_node=nic.numa_node,
            )
            for nic in topology.nics
        ],
    )


def telemetry_message(report: NodeReport) -> agent_pb2.AgentReport:
    """Encode a report without its jobs."""
    telemetry = agent_pb2.NodeTelemetry(
        interval_s=report.interval_s,
        gpus_read=report.gpus is not None,
        gpus=map(_gpu, report.gpus or ()),
        nics=map(_nic, report.nics),
        job_socket=agent_pb2.JobSocketCounters(
            connections=report.socket.connections,
            accepted=report.socket.accepted,
            refused=report.socket.refused,
            closed_for_cause=report.socket.closed_for_cause,
            frames=report.socket.frames,
            unknown_frames=report.socket.unknown_frames,
            dropped_sends=report.socket.dropped_sends,
        ),
        failed_tasks=[
            agent_pb2.FailedTask(
                task=each.task,
                failures=each.failures,
                in_a_row=each.in_a_row,
                last_s=each.time_s,
                problem=each.problem[: bounds.MAX_TEXT],
            )
            for each in report.failed_tasks
        ],
    )
    return agent_pb2.AgentReport(time_s=report.time_s, monotonic_ns=report.monotonic_ns, telemetry=telemetry)


def job_message(job: JobReport, report: NodeReport) -> agent_pb2.AgentReport:
    """Encode the row of one job of that report."""
    message = agent_pb2.JobReport(
        job=_name(job),
        script=job.script or "",
        ranks=_ranks(job),
        world_size=job.world_size,
        model=_model(job.model),
        steps=job.steps,
        last_step_ns=job.last_step_ns,
        steps_per_s=job.steps_per_s,
        first_seen_ns=job.first_seen_ns,
        monotonic_ns=report.monotonic_ns,
        gpus=_indices(job.gpus),
        idle_gpus=_indices(job.idle_gpus),
        device=job.device or "",
        torch=job.torch or "",
        num_connected=job.num_connected,
        num_ended=job.num_ended,
        num_lost=job.num_lost,
        claimed_job_ids=job.claimed_job_ids,
        checkpoint=_checkpoint(job.checkpoint),
        started_ns=job.started_ns,
        loaded_ns=job.loaded_ns,
        first_step_ns=job.first_step_ns,
        usr1=None if job.usr1 is None else agent_pb2.JobUsr1(caught=job.usr1.caught, fatal=job.usr1.fatal),
        impaired=[agent_pb2.ImpairedGpu(index=gpu.index, causes=gpu.causes) for gpu in job.impaired],
        energy_joules=job.energy_j,
        steps_done=job.steps_done,
        report_wanted=job.report_wanted,
    )
    if job.usage is not None:
        _set(message, cpu_s=job.usage.cpu_s, memory_bytes=job.usage.memory_bytes)
        message.counted_by_kernel = job.usage.source == "cgroup"
    return agent_pb2.AgentReport(time_s=report.time_s, monotonic_ns=report.monotonic_ns, job=message)


def profile_message(job: JobReport, profile: Profile, report: NodeReport) -> agent_pb2.AgentReport:
    """Encode a profile of the job that is new in that report."""
    ranks = [rank.rank for rank in job.ranks if rank.profile == profile and rank.rank >= 0]
    return agent_pb2.AgentReport(
        time_s=report.time_s,
        monotonic_ns=report.monotonic_ns,
        profile=agent_pb2.JobProfile(
            job=_name(job),
            script=job.script or "",
            model=_model(job.model),
            rank=ranks[0] if ranks else None,
            world_size=job.world_size,
            steps=profile.steps,
            step_s=profile.step_s,
            compute_s=profile.compute_s,
            comm_exposed_s=profile.comm_exposed_s,
            comm_hidden_s=profile.comm_hidden_s,
            kinds=[
                agent_pb2.CollectiveUse(
                    kind=use.kind, count=use.count, bytes=use.bytes, seconds=use.seconds, link_bytes=use.link_bytes
                )
                for use in profile.kinds
            ],
            gpus=_indices(job.gpus),
            busy_s=profile.busy_s,
            local_exposed_s=profile.local_exposed_s,
            local_hidden_s=profile.local_hidden_s,
        ),
    )


class JobHistory:
    """The profiles and runs that were sent already. Invariant: each profile is sent once, and so is the end of each run."""

    def __init__(self, rows: RowGuard | None = None) -> None:
        """`rows` drops profiles that cannot be encoded."""
        self._rows = RowGuard("profiles of jobs for the controller") if rows is None else rows
        self._sent: dict[tuple[int, int], tuple[agent_pb2.JobName, Profile | None]] = {}
        """Jobs of the last reports. Bound: the jobs on the node."""

    def new_messages(self, report: NodeReport) -> Iterator[agent_pb2.AgentReport]:
        """Yield messages that must not be lost: new profiles of this report, and the ends of runs that are no longer in it."""
        here: dict[tuple[int, int], tuple[agent_pb2.JobName, Profile | None]] = {}
        for job in report.jobs:
            key = (job.job_id, job.restart)
            here[key] = (_name(job), self._last_profile(key))
        for job, news in self._rows.each(report.jobs, lambda job: self._profile(job, report)):
            if news is not None:
                here[job.job_id, job.restart] = (_name(job), job.profile)
                yield news
        for key in self._sent.keys() - here.keys():
            ended = agent_pb2.JobEnded(job=self._sent[key][0])
            yield agent_pb2.AgentReport(time_s=report.time_s, monotonic_ns=report.monotonic_ns, ended=ended)
        self._sent = here

    def _last_profile(self, key: tuple[int, int]) -> Profile | None:
        return self._sent.get(key, (None, None))[1]

    def _profile(self, job: JobReport, report: NodeReport) -> agent_pb2.AgentReport | None:
        """Encode the profile of a job; None = it has none, or it was sent before."""
        if job.profile is None or job.profile == self._last_profile((job.job_id, job.restart)):
            return None
        return profile_message(job, job.profile, report)


def _name(job: JobReport) -> agent_pb2.JobName:
    return agent_pb2.JobName(job_id=job.job_id, uid=job.uid, restart=job.restart)


def _ranks(job: JobReport) -> list[int]:
    """Return the ranks that step on this node now; the processes of a job without ranks are counted from 0."""
    ranks = [rank.rank for rank in job.ranks if rank.state == "connected"]
    return sorted(ranks) if min(ranks, default=0) >= 0 else list(range(len(ranks)))


def _checkpoint(checkpoint: CheckpointReport | None) -> agent_pb2.JobCheckpoint | None:
    if checkpoint is None:
        return None
    return agent_pb2.JobCheckpoint(
        ranks=checkpoint.ranks,
        restored_step=checkpoint.restored_step,
        saved_step=checkpoint.saved_step,
        saving=checkpoint.saving,
    )


def reason_message(reason: Reason) -> agent_pb2.AnswerReason.ValueType:
    """Return the reason as its number in agent.proto."""
    return agent_pb2.AnswerReason.Value(f"ANSWER_REASON_{reason.name}")


def answer_message(answer: SaveAnswer, time_s: float) -> agent_pb2.AgentReport:
    """Encode the outcome of a save."""
    reason = reason_message(answer.reason)
    message = agent_pb2.CommandAnswer(id=answer.id, accepted=not answer.problem, problem=answer.problem, reason=reason)
    if message.accepted:
        message.saved.CopyFrom(agent_pb2.SavedRanks(ranks=answer.ranks, world_size=answer.world_size, step=answer.step))
    return agent_pb2.AgentReport(time_s=time_s, answer=message)


def _model(model: Model | None) -> agent_pb2.JobModel | None:
    if model is None:
        return None
    return agent_pb2.JobModel(
        signature=model.signature,
        param_bytes=model.param_bytes,
        num_tensors=model.num_tensors,
        num_params=model.num_params,
        optimizers=model.optimizers,
        batch_size=model.batch_size if model.batch_size >= 0 else None,
        groups=[agent_pb2.ProcessGroup(name=one.name, size=one.size, backend=one.backend) for one in model.groups],
    )


def _gpu(gpu: GpuReading) -> agent_pb2.GpuTelemetry:
    return agent_pb2.GpuTelemetry(
        index=gpu.index,
        uuid=gpu.uuid or "",
        name=gpu.name or "",
        pci_address=gpu.pci_address or "",
        busy=_share(gpu.busy_percent),
        sm=_share(gpu.sm_percent),
        sm_clock_mhz=gpu.sm_clock_mhz,
        memory_busy=_share(gpu.memory_busy_percent),
        memory_used_bytes=gpu.memory_used_bytes,
        memory_total_bytes=gpu.memory_total_bytes,
        power_watts=gpu.power_w,
        pcie_tx_bytes_per_s=gpu.pcie_tx_bytes_per_s,
        pcie_rx_bytes_per_s=gpu.pcie_rx_bytes_per_s,
        nvlink_tx_bytes=gpu.nvlink_tx_bytes,
        nvlink_rx_bytes=gpu.nvlink_rx_bytes,
        processes_read=gpu.processes is not None,
        processes=_processes(gpu.processes),
        mig=[
            agent_pb2.MigInstance(
                uuid=part.uuid,
                gpu_instance=part.gpu_instance,
                compute_instance=part.compute_instance,
                memory_used_bytes=part.memory_used_bytes,
                memory_total_bytes=part.memory_total_bytes,
                processes_read=part.processes is not None,
                processes=_processes(part.processes),
            )
            for part in gpu.mig
        ],
    )


def _processes(processes: Iterable[GpuProcess] | None) -> list[agent_pb2.GpuProcess]:
    return [
        agent_pb2.GpuProcess(pid=process.pid, memory_bytes=process.memory_bytes, job_id=process.job_id)
        for process in processes or ()
    ]


def _nic(nic: NicReading) -> agent_pb2.NicTelemetry:
    return agent_pb2.NicTelemetry(
        name=nic.name,
        infiniband=nic.kind == "infiniband",
        speed_bits_per_s=nic.speed_bits_per_s,
        up=nic.up,
        rx_bytes_per_s=nic.rx_bytes_per_s,
        tx_bytes_per_s=nic.tx_bytes_per_s,
    )


def _indices(indices: Iterable[int] | None) -> agent_pb2.GpuSet | None:
    return None if indices is None else agent_pb2.GpuSet(index=indices)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _set(message: Any, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None:
            setattr(message, name, value)
