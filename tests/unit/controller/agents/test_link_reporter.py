"""From the agent's rows to the controller's store, and from the controller's words to the agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey
from nodeagent.saves.coordinator import SaveAnswer, SaveRequest
from nodeagent.uplink.controller_reporter import ControllerReporter
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import StreamSettings
from nodeagent.wire.report import NicDevice, Topology
from protos.headway.v1 import agent_pb2
from tests.unit.nodeagent.uplink.test_encode import PROFILE, job, node, rank
from tests.unit.policies.processes import eventually

TOPOLOGY = Topology(
    2, 8, (), (), (NicDevice("eth0", "ethernet", 10**9, None), NicDevice("ib0", "infiniband", 10**11, 0))
)


class Agent:
    """An agent that records the controller's requests."""

    def __init__(self) -> None:
        self.changes: list[tuple[float | None, int | None]] = []
        self.profiled: list[tuple[int, int]] = []
        self.saves: list[SaveRequest] = []
        self.gone_on: list[tuple[str, int, int]] = []

    def apply_settings(self, *, report_interval_s: float | None = None, profile_steps: int | None = None) -> None:
        self.changes.append((report_interval_s, profile_steps))

    def request_profile(self, job_id: int, steps: int) -> str:
        self.profiled.append((job_id, steps))
        return "" if job_id == 7 else f"job {job_id}: not here"

    def request_save(self, order: SaveRequest) -> str:
        self.saves.append(order)
        return "" if order.within_s else "at once is too soon"

    def request_go_on(self, save_id: str, job_id: int, restart: int) -> None:
        self.gone_on.append((save_id, job_id, restart))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


async def test_reports_reach_the_store_and_commands_reach_the_agent(store: ProfileStore, tmp_path: Path) -> None:
    address, agent, outbox = f"unix://{tmp_path}/a.sock", Agent(), Outbox()
    answers: list[agent_pb2.CommandAnswer] = []

    def listen(_node: str, report: agent_pb2.AgentReport) -> None:
        if report.WhichOneof("kind") == "answer":
            answers.append(report.answer)

    server = AgentsServer(AgentsSettings(address, report_interval_s=2.0, profile_steps=7), store, None, listen)
    prepared: list[bool] = []

    async def prepare() -> None:
        await asyncio.sleep(0)
        prepared.append(True)

    def topology() -> Topology:
        assert prepared
        return TOPOLOGY

    reporter = ControllerReporter(StreamSettings((address,)), "n1", "1.2", topology, agent, None, outbox, prepare)
    # given an agent that has reported before there was anybody to hear it
    row = job(profile=PROFILE, ranks=tuple(rank(number) for number in range(4)))
    for at in range(3):
        reporter.report(node(row, time_s=time.time(), monotonic_ns=at))
    running = asyncio.create_task(reporter.run())
    await server.start()

    async def all_acknowledged() -> bool:
        return len(outbox) == 0 and reporter.status.connected

    await eventually(all_acknowledged)
    # then the controller knows the node, and its store the profile, once
    status = server.nodes["n1"]
    assert (status.version, status.topology.sockets) == ("1.2", 2)
    assert status.telemetry is not None
    assert await server.use_store(lambda store: store.link_bytes_per_s(["n1"])) == 1e11 / 8
    (profile,) = await server.use_store(lambda store: list(store.profiles()))
    assert (profile.run, profile.kinds) == (RunKey(7, 1), {"all_reduce": 4e6})
    # and the agent the settings
    assert agent.changes == [(2.0, 7)]
    # when it receives requests to profile a job that runs and one that does not, and a request of a later version
    for number, job_id in enumerate((7, 8)):
        command = agent_pb2.AgentCommand(id=str(number), job=agent_pb2.JobName(job_id=job_id))
        command.profile.steps = 30
        assert server.send_command("n1", command)
    assert server.send_command("n1", agent_pb2.AgentCommand(id="new"))

    async def answered() -> bool:
        return len(answers) == 3

    await eventually(answered)
    # then it does what it can, and says so
    assert agent.profiled == [(7, 30), (8, 30)]
    assert [(answer.id, answer.accepted) for answer in answers] == [("0", True), ("1", False), ("new", False)]
    assert "not here" in answers[1].problem
    # when it receives a request to save a job, it answers once it knows the outcome
    name = agent_pb2.JobName(job_id=7, uid=1000, restart=2)
    for number, within_s in enumerate((0.0, 60.0), start=1):
        save = agent_pb2.SaveRequest(within_s=within_s, still_s=120.0)
        assert server.send_command("n1", agent_pb2.AgentCommand(id=f"p1.{number}", job=name, save=save))
    go_on = agent_pb2.GoOnRequest(save_id="p1.2")
    assert server.send_command("n1", agent_pb2.AgentCommand(id="p1.2.off", job=name, go_on=go_on))

    async def is_answered() -> bool:
        return len(answers) == 5

    await eventually(is_answered)
    assert agent.saves == [
        SaveRequest(f"p1.{number}", 7, 2, within_s, 120.0) for number, within_s in ((1, 0.0), (2, 60.0))
    ]
    assert agent.gone_on == [("p1.2", 7, 2)]
    assert [(answer.id, answer.problem) for answer in answers[3:]] == [
        ("p1.1", "at once is too soon"),
        ("p1.2.off", ""),
    ]
    reporter.answer(SaveAnswer("p1.2", "", (0, 1), 2, 40))

    async def saved() -> bool:
        return len(answers) == 6

    await eventually(saved)
    assert answers[5].saved == agent_pb2.SavedRanks(ranks=[0, 1], world_size=2, step=40)
    # and news of a job goes out by itself
    reporter.report_early(node(row, time_s=time.time(), monotonic_ns=9))
    await eventually(all_acknowledged)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await server.stop()


def test_a_command_at_which_the_agent_fails_is_answered_and_costs_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, outbox = Agent(), Outbox()
    reporter = ControllerReporter(StreamSettings(("unix:///x",)), "n1", "1.0", lambda: TOPOLOGY, agent, None, outbox)

    def fails(_order: SaveRequest) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(agent, "request_save", fails)
    save = agent_pb2.SaveRequest(within_s=1.0, still_s=1.0)
    reporter._command(agent_pb2.AgentCommand(id="p1.1", job=agent_pb2.JobName(job_id=7), save=save))

    answered = outbox.after(0)
    assert answered is not None
    assert (answered.answer.id, answered.answer.accepted) == ("p1.1", False)
    assert answered.answer.problem == "the agent could not carry it out: RuntimeError: a bug"
