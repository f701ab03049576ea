"""Agents' claims: limited on arrival, so that no later stage fails, fills up or stops serving the other agents."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from structlog.testing import capture_logs

from controller.agents.reports.allocations import Allocations
from controller.agents.reports.claims import link_bits_per_s, out_of_bounds, topology_out_of_bounds
from controller.agents.reports.report_screen import ReportScreen
from controller.observe.model_profiles import KnownModels
from controller.preempt.attempts.checkpoint_quorum import problem, saved_step
from controller.preempt.preemptibility import preemptibility
from controller.preempt.reports.job_reports import ReportTable
from controller.profiles.current import contention
from controller.profiles.ideal import ideal_of, measured_priors
from controller.profiles.sensitivity import Priors, StepProfile, predict_step_s
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import SlurmJob
from protos.headway.v1 import agent_pb2
from tests.unit.controller.examples.build import running, snapshot
from tests.unit.controller.examples.reports import Agents, Training

NAME = agent_pb2.JobName(job_id=7, uid=1000)
STEP = {"steps": 20, "step_s": 0.2, "compute_s": 0.1, "comm_exposed_s": 0.1}


def job(**claims: Any) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(time_s=100.0, job=agent_pb2.JobReport(**{"job": NAME, **claims}))


def profile(**claims: Any) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(profile=agent_pb2.JobProfile(**{"job": NAME, **STEP, **claims}))


def telemetry(**claims: Any) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(telemetry=agent_pb2.NodeTelemetry(**claims))


def answer(**claims: Any) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(answer=agent_pb2.CommandAnswer(id="p1.1", **claims))


@pytest.mark.parametrize(
    ("report", "field"),
    [
        (job(world_size=2**31 - 1), "world_size"),
        (job(ranks=[2**17]), "ranks"),
        (job(ranks=[0] * (2**17 + 1)), "ranks"),
        (job(steps=2**63 - 1), "steps"),
        (job(steps_done=2**63 - 1), "steps_done"),
        (job(steps_per_s=nan), "steps_per_s"),
        (job(job=agent_pb2.JobName(job_id=2**63)), "job_id"),
        (job(job=agent_pb2.JobName(job_id=7, restart=2**32 - 1)), "restart"),
        (job(monotonic_ns=2**64 - 1), "monotonic_ns"),
        (job(script="x" * 256), "script"),
        (job(claimed_job_ids=["7"] * 65), "claimed_job_ids"),
        (job(gpus=agent_pb2.GpuSet(index=range(257))), "gpus"),
        (job(model=agent_pb2.JobModel(param_bytes=2**64 - 1)), "param_bytes"),
        (job(model=agent_pb2.JobModel(groups=[agent_pb2.ProcessGroup()] * 65)), "groups"),
        (job(checkpoint=agent_pb2.JobCheckpoint(ranks=[2**32 - 1])), "checkpoint.ranks"),
        (job(checkpoint=agent_pb2.JobCheckpoint(saved_step=2**64 - 1)), "saved_step"),
        (profile(step_s=5e-324), "step_s"),
        (profile(step_s=1e308), "step_s"),
        (profile(compute_s=inf), "compute_s"),
        (profile(steps=2**64 - 1), "steps"),
        (profile(kinds=[agent_pb2.CollectiveUse(kind="other", bytes=1e308)]), "bytes"),
        (profile(kinds=[agent_pb2.CollectiveUse(kind="other")] * 65), "kinds"),
        (telemetry(gpus=[agent_pb2.GpuTelemetry()] * 257), "gpus"),
        (telemetry(gpus=[agent_pb2.GpuTelemetry(processes=[agent_pb2.GpuProcess()] * 4097)]), "gpus.processes"),
        (telemetry(gpus=[agent_pb2.GpuTelemetry(mig=[agent_pb2.MigInstance()] * 4097)]), "gpus.mig"),
        (telemetry(gpus=[agent_pb2.GpuTelemetry(mig=[agent_pb2.MigInstance(uuid="x" * 256)])]), "uuid"),
        (telemetry(gpus=[agent_pb2.GpuTelemetry(name="x" * 256)]), "name"),
        (telemetry(nics=[agent_pb2.NicTelemetry(rx_bytes_per_s=-1.0)]), "rx_bytes_per_s"),
        (answer(accepted=True, saved=agent_pb2.SavedRanks(world_size=2**32 - 1)), "world_size"),
        (answer(accepted=True, saved=agent_pb2.SavedRanks(step=2**64 - 1)), "step"),
        (agent_pb2.AgentReport(ended=agent_pb2.JobEnded(job=agent_pb2.JobName(job_id=2**64 - 1))), "job_id"),
        (agent_pb2.AgentReport(time_s=1e308), "time_s"),
        (agent_pb2.AgentReport(dropped=2**64 - 1), "dropped"),
    ],
)
def test_what_is_out_of_bounds_is_named(report: agent_pb2.AgentReport, field: str) -> None:
    assert out_of_bounds(report).endswith(field)


@pytest.mark.parametrize(
    "report", [job(world_size=2**17, ranks=[2**17 - 1], steps=2**40), profile(), telemetry(), answer(problem="x")]
)
def test_what_is_within_bounds_passes(report: agent_pb2.AgentReport) -> None:
    assert out_of_bounds(report) == ""


@pytest.mark.parametrize(
    ("topology", "field"),
    [
        ({"gpus": [agent_pb2.GpuDevice()] * 257}, "gpus"),
        ({"nics": [agent_pb2.NicDevice()] * 1025}, "nics"),
        ({"numa_nodes": [agent_pb2.NumaNode()] * (2**16 + 1)}, "numa_nodes"),
        ({"numa_nodes": [agent_pb2.NumaNode(cpus=range(2**16 + 1))]}, "numa_nodes"),
        ({"nics": [agent_pb2.NicDevice(name="x" * 256)]}, "name"),
        ({"gpus": [agent_pb2.GpuDevice(pci_address="x" * 256)]}, "pci_address"),
        ({"numa_nodes": [agent_pb2.NumaNode(cpus=range(2**16))], "gpus": [agent_pb2.GpuDevice()] * 256}, ""),
    ],
)
def test_a_topology_that_no_node_has_is_not_kept(topology: dict[str, Any], field: str) -> None:
    assert topology_out_of_bounds(agent_pb2.NodeTopology(**topology)) == field


def test_a_network_interface_that_cannot_be_does_not_count() -> None:
    nics = [agent_pb2.NicDevice(speed_bits_per_s=speed) for speed in (10**11, 2**63)]
    assert link_bits_per_s(agent_pb2.NodeTopology(nics=nics)) == 10**11
    assert link_bits_per_s(agent_pb2.NodeTopology(nics=nics[1:])) is None


# --- the screen


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def arrival(report: agent_pb2.AgentReport, node: str = "n1", at_s: float = 100.0) -> Arrival:
    report.number = 1
    return Arrival(node, "a" * 32, report, at_s)


def test_a_report_that_is_left_out_is_emptied_counted_and_logged_once_a_minute() -> None:
    clock = Clock()
    screen = ReportScreen(monotonic=clock)
    with capture_logs() as logs:
        for at in range(121):
            clock.now_s = float(at)
            come = arrival(job(world_size=2**31 - 1))
            screen.screen(come)
            assert (come.report.number, come.report.WhichOneof("kind")) == (1, None)
        screen.screen(arrival(job(world_size=2**31 - 1), node="n2"))
    assert screen.counted == {"bounds": 122}
    assert [(line["node"], line["unlogged"]) for line in logs] == [("n1", 0), ("n1", 59), ("n1", 59), ("n2", 0)]
    assert not any(line["exc_info"] for line in logs)


def test_an_error_of_the_store_is_one_short_line_without_a_traceback() -> None:
    screen = ReportScreen(monotonic=Clock())
    with capture_logs() as logs:
        for _ in range(1000):
            screen.not_stored("n1", OverflowError("x" * 10_000))
    assert len(logs) == 1
    assert len(str(logs[0])) < 400
    assert screen.counted == {"store": 1000}


def test_a_bug_leaves_one_traceback_a_minute_in_the_log() -> None:
    clock = Clock()
    screen = ReportScreen(monotonic=clock)
    with capture_logs() as logs:
        for at in range(100):
            clock.now_s = float(at)
            screen.listener_failed("n1", RuntimeError("a bug"))
            screen.not_stored("n1", RuntimeError("another"))
            screen.not_stored("n2", OverflowError("a number"))
    assert [(line["reason"], line["exc_info"]) for line in logs] == [
        ("listener", True), ("store", True), ("store", False)
    ] * 2  # fmt: skip


def test_the_text_of_an_answer_is_printable() -> None:
    come = arrival(answer(problem="rank 0: \x1b[31m" + "x" * 100_000))
    ReportScreen().screen(come)
    assert come.report.answer.problem.startswith("rank 0: ?[31mxxx")
    assert len(come.report.answer.problem) == 500


def on(*nodes: str) -> SlurmJob:
    return replace(running("7", on=dict.fromkeys(nodes, 1)), raw_id=7, start_time_s=1000.0)


def test_reports_of_nodes_on_which_slurm_does_not_run_the_job_do_not_count() -> None:
    # given a job that Slurm runs on n1, and a node that claims to have it too
    seen: SlurmSnapshot | None = snapshot(on("n1"))
    screen = ReportScreen(Allocations(lambda: seen), Clock())

    def passes(node: str, at_s: float, report: agent_pb2.AgentReport) -> bool:
        report.time_s = at_s
        come = arrival(report, node, at_s)
        screen.screen(come)
        return come.report.WhichOneof("kind") is not None

    assert not passes("n9", 1100.0, job())
    assert not passes("n9", 1100.0, profile())
    assert screen.counted == {"allocation": 2}
    assert passes("n1", 1100.0, job())
    # then what is of a run before, and of a job that the snapshot does not show yet, is not refused
    assert passes("n9", 1000.0, job())
    seen = snapshot()
    assert passes("n9", 1100.0, job())
    seen = None
    assert passes("n9", 1100.0, job())


# --- what is worked out of claims


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


def test_a_profile_that_is_all_communication_of_nothing_takes_no_time_to_divide_by() -> None:
    nothing = StepProfile(step_s=0.2, compute_s=0.0, exposed_s=0.2, hidden_s=0.0, ring_bytes=0.0)
    step_s = predict_step_s(nothing, 2, 1e9)
    assert step_s is not None
    assert step_s > 0


def test_jobs_that_claim_such_profiles_stop_no_other_measurements(store: ProfileStore) -> None:
    # given two jobs that ran alone on two nodes each, one of which claims a step that is all communication of no bytes
    agents = Agents()
    honest = Training(1, ("n1", "n2"), 4.0, uid=1, signature="cd" * 32)
    liar = Training(2, ("n3", "n4"), 4.0, uid=2)
    store.take(agents.watch([honest, liar], 0.0, 120.0))
    store.take([agents.arrival("n3", liar.profile(60.0, {"step_s": 0.2, "comm_exposed_s": 0.2}, {}))])
    for node in ("n1", "n2", "n3", "n4"):
        store.note_node(node, 10**10)
    store.compute_windows(1e6)
    # when how jobs spread is worked out
    priors = measured_priors(store, 0.0)
    # then it is a number
    assert isfinite(priors.prediction_error)
    assert KnownModels.of(store, 0.0).nic_gbyte_s["n1"] == 1.25


def test_a_million_steps_a_second_are_not_believed(store: ProfileStore) -> None:
    agents = Agents()
    store.take(agents.watch([Training(1, ("n1",), 2e6)], 0.0, 120.0))
    store.compute_windows(1e6)
    assert list(store.throughputs(0.0)) == []


# --- mutations


def good_reports(agents: Agents) -> list[tuple[str, agent_pb2.AgentReport]]:
    one = Training(5, ("n1", "n2"), 4.0)
    gpu = agent_pb2.GpuTelemetry(index=0, name="H100", processes=[agent_pb2.GpuProcess(pid=1, job_id=5)])
    saved = agent_pb2.SavedRanks(ranks=[0], world_size=2, step=40)
    checkpoint = agent_pb2.JobCheckpoint(ranks=[0], restored_step=1, saved_step=2)
    steps = one.report("n1", 50.0)
    steps.job.checkpoint.CopyFrom(checkpoint)
    return [
        ("n1", steps),
        ("n2", one.report("n2", 50.0)),
        ("n1", one.profile(50.0, {"step_s": 0.2, "compute_s": 0.1}, {"all_reduce": 4e6})),
        ("n1", telemetry(gpus_read=True, gpus=[gpu], interval_s=5.0)),
        ("n1", answer(accepted=True, saved=saved)),
    ]


WHOLE = (0, 1, 2**17, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
BROKEN = (0.0, -1.0, 5e-324, 1e-9, 1e308, inf, -inf, nan)
TEXTS = ("", "x" * 255, "x" * 256, "\x00\x1b[31m", "ab" * 32, "\U0001f600" * 300)


def mutate(dice: random.Random, message: Message) -> None:
    """Exchange one value, somewhere in the message."""
    field = dice.choice(message.DESCRIPTOR.fields)
    if field.is_repeated:
        values = getattr(message, field.name)
        if field.message_type is not None:
            if not values or dice.random() < 0.2:
                values.add()
            mutate(dice, dice.choice(values))
        else:
            values.extend([value(dice, field)] * dice.choice((1, 2, 300)))
    elif field.message_type is not None:
        mutate(dice, getattr(message, field.name))
    elif field.cpp_type == field.CPPTYPE_BOOL:
        setattr(message, field.name, dice.random() < 0.5)
    else:
        setattr(message, field.name, value(dice, field))


def value(dice: random.Random, field: FieldDescriptor) -> int | float | str:
    if field.cpp_type == field.CPPTYPE_STRING:
        return dice.choice(TEXTS)
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        return dice.choice(BROKEN)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return dice.choice((0, 1, 10, 11, 2**31 - 1))
    return dice.choice([each for each in WHOLE if field.cpp_type == field.CPPTYPE_UINT64 or each < 2**32])


def test_mutated_reports_break_nothing_behind_the_screen(store: ProfileStore) -> None:
    dice, agents, table = random.Random(20261123), Agents(), ReportTable()
    screen = ReportScreen(monotonic=Clock())
    goods = good_reports(agents)
    saying = replace(running("5", on={"n1": 4, "n2": 4}), raw_id=5)
    answers: dict[str, agent_pb2.CommandAnswer] = {}
    for number in range(1, 4001):
        node, good = dice.choice(goods)
        report = agent_pb2.AgentReport.FromString(good.SerializeToString())
        for _ in range(dice.randint(1, 3)):
            mutate(dice, report)
        report.number = number
        come = Arrival(node, agents.run_id, report, 60.0, made_s=report.time_s)
        screen.screen(come)
        store.take([come])
        table.take(node, come.report)
        if come.report.WhichOneof("kind") == "answer":
            answers[node] = come.report.answer
            saved_step({"n1", "n2"}, answers)
            problem({"n1", "n2"}, answers)
        preemptibility(saying, table.of(RunKey(5, 0)), {"n1", "n2"}, None)
    store.compute_windows(time.time())
    measured_priors(store, 0.0)
    for item in store.throughputs(0.0):
        ideal_of(store, item.run.job_id, item.trained, item.shape, item.nodes, Priors())
        assert contention(store, item, Priors()).value != inf
    assert 500 < screen.counted["bounds"] < 3500
    table.keep({5}, {"n1", "n2"})
    assert all(len(table.of(RunKey(5, restart))) <= 2 for restart in range(10))
