"""The agent's rows as messages: nothing is invented or lost, and each profile and each end is sent once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from nodeagent.saves.coordinator import SaveAnswer
from nodeagent.uplink.controller_reporter import ControllerReporter
from nodeagent.uplink.encode import (
    JobHistory,
    answer_message,
    job_message,
    reason_message,
    telemetry_message,
    topology_message,
)
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import StreamSettings
from nodeagent.wire.frames import Collective, Group, Model, Profile
from nodeagent.wire.reasons import Reason
from nodeagent.wire.report import (
    CheckpointReport,
    GpuDevice,
    GpuProcess,
    GpuReading,
    JobReport,
    JobUsage,
    MigReading,
    NicDevice,
    NicReading,
    NodeReport,
    NumaNode,
    RankReport,
    SocketCounters,
    Topology,
)
from policies.serving.runtime.tasks.supervise import TaskFailure
from protos.headway.v1 import agent_pb2

SOCKET = SocketCounters(1, 2, 3, 4, 5, 6, 7)
MODEL = Model(
    seq=1, param_bytes=2**53, num_tensors=2**53, num_params=9, optimizers=2**53, groups=(Group("g", 4, "nccl"),),
    signature="ab" * 32, batch_size=-1,
)  # fmt: skip
PROFILE = Profile(
    seq=3, steps=2**40, step_s=0.3, compute_s=0.1, comm_exposed_s=0.2, comm_hidden_s=0.05,
    kinds=(Collective("all_reduce", 2.0, 4e6, 0.25, 1e6),), busy_s=0.09, local_exposed_s=0.01, local_hidden_s=0.0,
)  # fmt: skip


def rank(number: int, **more: Any) -> RankReport:
    row = RankReport(
        pid=100 + number, step_id="0", rank=number, local_rank=number, world_size=4, state="connected", steps=10, first_ns=1,
        last_ns=2, steps_per_s=1.0, profile=None,
    )  # fmt: skip
    return replace(row, **more)


def job(**more: Any) -> JobReport:
    row = JobReport(
        job_id=7, uid=1000, restart=1, first_seen_ns=5, steps=10, steps_per_s=2.5, last_step_ns=77, world_size=4, device="cuda",
        torch="2.13", script="train.py", model=MODEL, profile=None, ranks=(rank(0), rank(1)), num_connected=3, num_ended=1,
        num_lost=2, claimed_job_ids=("9",), usage=JobUsage(12.5, 1 << 30, "cgroup"), gpus=(0, 3), idle_gpus=(),
    )  # fmt: skip
    return replace(row, **more)


def node(*jobs: JobReport, **more: Any) -> NodeReport:
    row = NodeReport(
        node_name="n1", time_s=1000.5, monotonic_ns=99, interval_s=5.0, jobs=jobs, gpus=None, nics=(), socket=SOCKET
    )
    return replace(row, **more)


def blank(**more: Any) -> JobReport:
    """A job of which no process reports."""
    row = JobReport(
        job_id=7, uid=1000, restart=0, first_seen_ns=5, steps=None, steps_per_s=None, last_step_ns=None, world_size=None,
        device=None, torch=None, script=None, model=None, profile=None, ranks=(), num_connected=0, num_ended=0, num_lost=0,
        claimed_job_ids=(),
    )  # fmt: skip
    return replace(row, **more)


def test_a_job() -> None:
    found = job_message(job(), node())
    reported = found.job
    assert (found.time_s, reported.monotonic_ns, reported.first_seen_ns) == (1000.5, 99, 5)
    assert reported.job == agent_pb2.JobName(job_id=7, uid=1000, restart=1)
    assert (reported.script, list(reported.ranks), reported.world_size, reported.steps, reported.last_step_ns) == (
        "train.py",
        [0, 1],
        4,
        10,
        77,
    )
    assert (list(reported.gpus.index), list(reported.idle_gpus.index), reported.HasField("idle_gpus")) == (
        [0, 3],
        [],
        True,
    )
    assert (reported.cpu_s, reported.memory_bytes, reported.counted_by_kernel) == (12.5, 1 << 30, True)
    assert (reported.num_connected, reported.num_ended, reported.num_lost, list(reported.claimed_job_ids)) == (
        3,
        1,
        2,
        ["9"],
    )
    assert (reported.model.signature, reported.model.num_tensors, reported.model.HasField("batch_size")) == (
        "ab" * 32,
        2**53,
        False,
    )
    assert reported.model.groups[0] == agent_pb2.ProcessGroup(name="g", size=4, backend="nccl")


def test_every_message_has_its_time_on_a_clock_that_is_never_set() -> None:
    history, row = JobHistory(), job(profile=PROFILE)
    made = [
        telemetry_message(node()),
        job_message(row, node()),
        *history.new_messages(node(row)),
        *history.new_messages(node()),
    ]
    assert [message.WhichOneof("kind") for message in made] == ["telemetry", "job", "profile", "ended"]
    assert {message.monotonic_ns for message in made} == {99}


def test_what_is_not_known_is_left_out() -> None:
    reported = job_message(blank(), node()).job
    assert {field.name for field, _ in reported.ListFields()} == {"job", "first_seen_ns", "monotonic_ns"}
    telemetry = telemetry_message(node(interval_s=None)).telemetry
    assert {field.name for field, _ in telemetry.ListFields()} == {"job_socket"}
    bare = GpuReading(0, *[None] * 15)  # type: ignore[arg-type]
    (gpu,) = telemetry_message(node(gpus=(bare,))).telemetry.gpus
    assert gpu.ListFields() == []


def test_how_a_job_can_come_back_and_when_it_began() -> None:
    back = CheckpointReport((0, 1), 40, None, saving=True)
    reported = job_message(job(checkpoint=back, started_ns=1, loaded_ns=2, first_step_ns=3), node()).job
    assert reported.checkpoint == agent_pb2.JobCheckpoint(ranks=[0, 1], restored_step=40, saving=True)
    assert not reported.checkpoint.HasField("saved_step")
    assert (reported.started_ns, reported.loaded_ns, reported.first_step_ns) == (1, 2, 3)


def test_what_came_of_a_save() -> None:
    done = answer_message(SaveAnswer("p1.1", "", (0, 1), 2, 40), 5.0)
    assert done.answer.accepted
    assert done.answer.saved == agent_pb2.SavedRanks(ranks=[0, 1], world_size=2, step=40)
    failed = answer_message(SaveAnswer("p1.1", "rank 1 is gone", reason=Reason.RANKS_GONE), 5.0).answer
    assert failed.reason == agent_pb2.ANSWER_REASON_RANKS_GONE
    assert (failed.id, failed.accepted, failed.problem, failed.HasField("saved")) == (
        "p1.1",
        False,
        "rank 1 is gone",
        False,
    )


def test_ranks_that_are_gone_do_not_step_and_those_without_a_number_are_counted() -> None:
    gone = job(ranks=(rank(0), rank(1, state="ended"), rank(2, state="lost")))
    assert list(job_message(gone, node()).job.ranks) == [0]
    single = job(ranks=(rank(-1),), world_size=None)
    assert list(job_message(single, node()).job.ranks) == [0]


def test_telemetry() -> None:
    gpu = GpuReading(
        index=1, uuid="GPU-1", name="H100", pci_address="0000:3b:00.0", busy_percent=50.0, sm_percent=25.0, sm_clock_mhz=1500,
        memory_busy_percent=10.0, memory_used_bytes=1, memory_total_bytes=2, power_w=300.0, pcie_tx_bytes_per_s=3.0,
        pcie_rx_bytes_per_s=4.0, nvlink_tx_bytes=5, nvlink_rx_bytes=6, processes=(GpuProcess(1, None, 7), GpuProcess(2, 9)),
        mig=(MigReading("MIG-1", 1, 0, 3, 4, None),),
    )  # fmt: skip
    nic = NicReading("mlx5_0/1", "infiniband", 10**11, True, 1.0, 2.0)
    found = telemetry_message(node(gpus=(gpu,), nics=(nic,))).telemetry
    assert (found.interval_s, found.gpus_read, found.job_socket.dropped_sends) == (5.0, True, 7)
    (reported,) = found.gpus
    assert (reported.busy, reported.sm, reported.memory_busy, reported.power_watts, reported.processes_read) == (
        0.5,
        0.25,
        0.1,
        300.0,
        True,
    )
    assert reported.processes[0] == agent_pb2.GpuProcess(pid=1, job_id=7)
    assert reported.processes[1] == agent_pb2.GpuProcess(pid=2, memory_bytes=9)
    assert (reported.mig[0].uuid, reported.mig[0].gpu_instance, reported.mig[0].processes_read) == ("MIG-1", 1, False)
    assert (found.nics[0].infiniband, found.nics[0].up, found.nics[0].tx_bytes_per_s) == (True, True, 2.0)


def test_topology() -> None:
    found = topology_message(
        Topology(
            sockets=2,
            cpus=None,
            numa_nodes=(NumaNode(0, (0, 2), 5), NumaNode(1, (1, 3), None)),
            gpus=(GpuDevice("0000:3b:00.0", 0, 1), GpuDevice("0000:af:00.0", None, None)),
            nics=(NicDevice("eth0", "ethernet", 10**9, None),),
        )
    )
    assert (found.sockets, found.HasField("cpus"), list(found.numa_nodes[1].cpus)) == (2, False, [1, 3])
    assert (found.gpus[0].index, found.gpus[0].numa_node, found.gpus[1].HasField("index")) == (0, 1, False)
    assert (found.nics[0].speed_bits_per_s, found.nics[0].infiniband) == (10**9, False)


def kinds(history: JobHistory, report: NodeReport) -> list[str]:
    return [message.WhichOneof("kind") or "" for message in history.new_messages(report)]


def test_a_profile_is_reported_once_and_a_new_one_again() -> None:
    history = JobHistory()
    with_profile = job(profile=PROFILE, ranks=(rank(0), rank(1, profile=PROFILE)))
    (message,) = history.new_messages(node(with_profile))
    reported = message.profile
    assert (reported.rank, reported.step_s, reported.comm_hidden_s, reported.kinds[0].bytes, reported.steps) == (
        1,
        0.3,
        0.05,
        4e6,
        2**40,
    )
    assert reported.busy_s == 0.09
    assert (reported.kinds[0].link_bytes, reported.local_exposed_s, reported.local_hidden_s) == (1e6, 0.01, 0.0)
    assert kinds(history, node(with_profile)) == []
    assert kinds(history, node(job())) == []  # no rank reports it any more
    assert kinds(history, node(with_profile)) == []
    assert kinds(history, node(replace(with_profile, profile=replace(PROFILE, seq=9)))) == ["profile"]
    assert kinds(history, node(replace(with_profile, restart=2))) == ["profile", "ended"]


def test_the_end_of_a_run_is_reported_once() -> None:
    history = JobHistory()
    assert kinds(history, node(job(), blank(job_id=8))) == []
    (message,) = history.new_messages(node(job()))
    assert message.ended.job.job_id == 8
    assert kinds(history, node(job())) == []


def test_a_job_that_cannot_be_encoded_costs_no_other_job_its_message() -> None:
    # given three jobs, of which one claims more than a message can hold, in its row and in its profile
    claims = replace(PROFILE, steps=2**64)
    rows = (job(job_id=6, profile=PROFILE), job(job_id=7, steps=2**64, profile=claims), job(job_id=8, profile=PROFILE))
    outbox = Outbox()
    reporter = ControllerReporter(
        StreamSettings(("127.0.0.1:1",)),
        "n1",
        "1",
        lambda: None,
        None,
        None,
        outbox,  # type: ignore[arg-type, return-value]
    )
    # when they are reported, twice
    with capture_logs() as logs:
        reporter.report(node(*rows))
        reporter.report(node(*rows))
    # then the others' rows and profiles, and the telemetry, are on their way, and no run is reported as ended
    sent = []
    while (report := outbox.after(sent[-1].number if sent else 0)) is not None:
        sent.append(report)
    assert Counter(one.WhichOneof("kind") for one in sent) == {"profile": 2, "job": 4, "telemetry": 2}
    assert {one.job.job.job_id for one in sent if one.WhichOneof("kind") == "job"} == {6, 8}
    assert len(logs) == 1


def test_every_reason_has_its_number() -> None:
    numbers = {reason_message(reason) for reason in Reason}
    assert numbers == set(agent_pb2.AnswerReason.values())


def test_failed_tasks_of_the_agent() -> None:
    failure = TaskFailure("saves", 5, 2, 1000.0, "OSError: " + 300 * "x")
    (reported,) = telemetry_message(node(failed_tasks=(failure,))).telemetry.failed_tasks
    assert (reported.task, reported.failures, reported.in_a_row, reported.last_s) == ("saves", 5, 2, 1000.0)
    assert len(reported.problem) == 255  # the controller accepts no longer text
