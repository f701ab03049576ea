"""Agents and controller over real gRPC in one process: admission, acknowledgements, and replacement of connections."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from controller.agents.entry import dial_rate
from controller.agents.entry.admission import RefusedError
from controller.agents.entry.connections import Connections, end_of
from controller.agents.entry.gate import QUIET_CONNECTIONS
from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.base.errors import ConfigurationError
from controller.profiles.store import ProfileStore, ProfileStoreError
from nodeagent.uplink.endpoint import EndpointError
from nodeagent.uplink.munge import Credential, MungeError, MungeFault
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.session import METADATA_KEY, Direction, Signer, make_ticket
from nodeagent.uplink.stream import ControllerStream, StreamSettings
from policies.serving.runtime.tasks.supervise import Tasks
from protos.headway.v1 import agent_pb2, agent_pb2_grpc
from tests.unit.controller.examples.reports import Training
from tests.unit.policies.processes import eventually

QUICK: dict[str, Any] = {"first_pause_s": 0.02, "longest_pause_s": 0.1, "beat_s": 0.1}
PATIENT: dict[str, Any] = {"beat_s": 0.1, "silence_s": 30.0}


class PaperSeal:
    """Credentials as a cluster without munged would have them: kept in a drawer, each given away once."""

    def __init__(self, uid: int = 0, receiver_uid: int = 0) -> None:
        self.uid = uid
        self._receiver_uid = receiver_uid
        self._drawer: dict[str, tuple[bytes, int | None]] = {}

    async def encode(self, payload: bytes, only_uid: int | None = None) -> str:
        name = secrets.token_hex(8)
        self._drawer[name] = payload, only_uid
        return name

    async def decode(self, credential: str) -> Credential:
        try:
            payload, only_uid = self._drawer[credential]
        except KeyError:
            raise MungeError(MungeFault.INVALID, "not of this cluster") from None
        if only_uid is not None and only_uid != self._receiver_uid:
            raise MungeError(MungeFault.UNAUTHORIZED, f"for uid {only_uid}")
        return Credential(payload, self.uid, 0, int(time.time()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "state" / "profiles.sqlite")) as store:
        yield store


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int]] = []

    def __call__(self, node: str, report: agent_pb2.AgentReport) -> None:
        self.reports.append((node, report.number))


@asynccontextmanager
async def serving(server: AgentsServer) -> AsyncIterator[AgentsServer]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def started(server: AgentsServer) -> AgentsServer:
    await server.start()
    return server


class Agent:
    """A link, with the settings that it received."""

    def __init__(self, address: str, node: str = "n1", seal: PaperSeal | None = None, **settings: Any) -> None:
        self.outbox = Outbox()
        self.commands: list[agent_pb2.AgentCommand] = []
        self.settings: list[agent_pb2.AgentSettings] = []
        self.node = node
        self.link = ControllerStream(
            StreamSettings((address,), **{**QUICK, **settings}), self.hello, self.outbox, self.heed, self.settings.append, seal,
            random.Random(1),
        )  # fmt: skip

    def heed(self, command: agent_pb2.AgentCommand) -> None:
        self.commands.append(command)

    def hello(self) -> agent_pb2.AgentHello:
        topology = agent_pb2.NodeTopology(nics=[agent_pb2.NicDevice(name="eth0", speed_bits_per_s=10**9)])
        return agent_pb2.AgentHello(node=self.node, boot_id="boot", agent_version="1.0", topology=topology)

    def put(self, keep: bool = False) -> None:
        self.outbox.put(agent_pb2.AgentReport(time_s=time.time(), telemetry=agent_pb2.NodeTelemetry()), keep=keep)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Agent]:
        task = asyncio.create_task(self.link.run())
        try:
            yield self
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def connected(self) -> None:
        await eventually(self._up)

    async def _up(self) -> bool:
        return self.link.status.connected

    async def failed(self, text: str) -> None:
        async def is_reported() -> bool:
            return text in self.link.status.last_error

        try:
            await eventually(is_reported)
        except AssertionError:
            raise AssertionError(f"{text!r} not in {self.link.status.last_error!r}") from None

    async def failed_somehow(self) -> None:
        async def is_reported() -> bool:
            return self.link.status.last_error != ""

        await eventually(is_reported)

    async def emptied(self) -> None:
        async def empty() -> bool:
            return len(self.outbox) == 0

        await eventually(empty)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/a.sock"


async def test_reports_arrive_once_and_are_acknowledged(store: ProfileStore, address: str) -> None:
    heard, begun_s = Heard(), time.time()
    async with serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None, heard)) as server:
        async with Agent(address).running() as agent:
            for _ in range(300):
                agent.put()
            await agent.emptied()
            status = server.nodes["n1"]
            assert (status.connected, status.version, status.boot_id, status.reports) == (True, "1.0", "boot", 300)
            assert abs(status.clock_behind_s) <= time.time() - begun_s + 0.1
            assert agent.settings[0].profile_steps == 20

        async def gone() -> bool:
            return not server.nodes["n1"].connected

        await eventually(gone)
    assert heard.reports == [("n1", number) for number in range(1, 301)]
    assert store.link_bytes_per_s(["n1"]) == 125e6


async def test_a_clock_that_is_set_on_a_node_moves_nothing_that_it_reports(store: ProfileStore, address: str) -> None:
    # Given an agent whose node's clock is set back by an hour after its hello, and a report that waited for two minutes
    settings = AgentsSettings(address, **PATIENT)
    async with serving(AgentsServer(settings, store, None)) as server, Agent(address).running() as agent:
        await agent.connected()
        begun_s = time.time()
        for waited_s in (120, 0):
            made_ns = time.monotonic_ns() - waited_s * 10**9
            report = Training(7, ("n1",), 4.0).report("n1", begun_s)
            report.time_s, report.monotonic_ns = begun_s - waited_s - 3600, made_ns
            agent.outbox.put(report)
        await agent.emptied()
        ended_s = time.time()
        # Then both are in the windows in which they were made, and the clock is seen to be behind
        old_s, new_s = (row[0] for row in store._db.execute("SELECT time_s FROM sight ORDER BY time_s"))
        assert begun_s - 120 <= old_s <= ended_s - 120
        assert begun_s <= new_s <= ended_s
        assert 3600 <= server.nodes["n1"].clock_behind_s <= 3600 + ended_s - begun_s


async def test_the_socket_is_the_controllers_alone_and_is_removed_at_its_end(store: ProfileStore, address: str) -> None:
    path = Path(address.removeprefix("unix://"))
    async with serving(AgentsServer(AgentsSettings(address), store, None)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigurationError, match="agents_address"):
            await AgentsServer(AgentsSettings(address), store, None).start()
    assert not path.exists()


async def test_a_stream_that_ends_by_a_defect_is_counted_and_the_agent_connects_again(
    store: ProfileStore, address: str
) -> None:
    tasks, failing = Tasks(), [RuntimeError("a defect"), asyncio.CancelledError()]
    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None, tasks=tasks)

    def fails_twice(_node: str) -> None:
        if failing:
            raise failing.pop(0)

    server.on_connect.append(fails_twice)
    assert tasks.failures["agent-calls"] == 0
    async with serving(server), Agent(address).running() as agent:
        agent.put()
        await agent.emptied()
    assert tasks.failures["agent-calls"] == 2
    assert [each.task for each in tasks.recent] == ["agent-calls"]


async def test_streams_that_are_refused_or_broken_are_no_defects(store: ProfileStore, address: str) -> None:
    tasks = Tasks()
    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None, knows=lambda node: node == "n1", tasks=tasks)
    async with serving(server), Agent(address).running() as agent, Agent(address, "n2").running():
        agent.put()
        await agent.emptied()

        async def refused() -> bool:
            return bool(server.refused)

        await eventually(refused)
    assert (tasks.failures["agent-calls"], tasks.failures.total()) == (0, 0)


async def test_an_agent_resumes_with_the_next_server(store: ProfileStore, address: str) -> None:
    heard = Heard()
    async with Agent(address).running() as agent:
        for turn in range(3):
            for _ in range(10):
                agent.put()
            async with serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None, heard)):
                await agent.emptied()
            assert turn + 1 == agent.link.status.streams
            agent.put()
    assert sorted(heard.reports) == [("n1", number) for number in range(1, 33)]


async def test_a_report_that_the_store_refuses_is_not_acknowledged(
    store: ProfileStore, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, broken = store.take, asyncio.Event()
    tried = 0

    def fail(arrivals: Any) -> list[bool]:
        nonlocal tried
        tried += 1
        if not broken.is_set():
            raise ProfileStoreError("disk full")
        return take(arrivals)

    monkeypatch.setattr(store, "take", fail)
    monkeypatch.setattr("controller.agents.reports.storage._STORE_AGAIN_S", 0.01)
    async with (
        serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None)),
        Agent(address).running() as agent,
    ):
        agent.put()

        async def tried_often() -> bool:
            return tried > 3

        await eventually(tried_often)
        assert len(agent.outbox) == 1
        broken.set()  # that is: mended
        await agent.emptied()


async def test_an_agent_learns_that_the_store_is_damaged_and_connects_when_there_is_another(
    store: ProfileStore, address: str, tmp_path: Path
) -> None:
    # given a damaged store whose folder is out of reach, so that no other file can take its place
    store._db.execute("DROP TABLE receipt")
    away = (tmp_path / "state").rename(tmp_path / "away")
    (tmp_path / "state").touch()
    async with (
        serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None)),
        Agent(address).running() as agent,
    ):
        agent.put(keep=True)
        await agent.failed("UNAVAILABLE: ")
        assert "the store of profiles cannot be opened" in agent.link.status.last_error
        # when the folder is back
        (tmp_path / "state").unlink()
        away.rename(tmp_path / "state")
        await agent.emptied()


async def test_a_report_that_cannot_be_stored_does_not_stop_the_others(
    store: ProfileStore, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, heard = store.take, Heard()

    def choosy(arrivals: Any) -> list[bool]:
        if any(arrival.report.number == 5 for arrival in arrivals):
            raise OverflowError("a number that nobody foresaw")
        return take(arrivals)

    monkeypatch.setattr(store, "take", choosy)
    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None, heard)
    async with serving(server), Agent(address).running() as agent:
        for _ in range(10):
            agent.put()
        await agent.emptied()
    assert [number for _, number in heard.reports] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


async def test_commands_reach_the_node_and_no_other(store: ProfileStore, address: str) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None)))
        one = await stack.enter_async_context(Agent(address, "n1").running())
        two = await stack.enter_async_context(Agent(address, "n2").running())
        await one.connected()
        await two.connected()
        commands = [
            agent_pb2.AgentCommand(id=str(number), profile=agent_pb2.ProfileRequest(steps=number))
            for number in range(5)
        ]
        assert all(server.send_command("n2", command) for command in commands)
        assert not server.send_command("n9", commands[0])

        async def there() -> bool:
            return len(two.commands) == 5

        await eventually(there)
        assert (two.commands, one.commands) == (commands, [])


async def test_a_later_stream_of_a_node_takes_the_place_of_the_earlier(store: ProfileStore, address: str) -> None:
    # given an agent that hangs and does not know it, and one that was started beside it
    heard = Heard()
    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None, heard)
    async with serving(server), Agent(address, first_pause_s=60.0, longest_pause_s=60.0).running() as old:
        await old.connected()
        async with Agent(address).running() as new:
            await new.connected()
            await old.failed("has opened a newer stream")
            new.put()
            await new.emptied()
            assert (server.nodes["n1"].run_id, server.nodes["n1"].connected) == (new.outbox.run_id, True)
            assert server.nodes["n1"].streams == 2
    assert heard.reports == [("n1", 1)]


# --- who is let in


async def test_with_credentials_over_loopback(store: ProfileStore) -> None:
    seal = PaperSeal()
    async with serving(AgentsServer(AgentsSettings("127.0.0.1:0", **PATIENT), store, seal)) as server:
        async with Agent(server.address, seal=seal).running() as agent:
            agent.put()
            await agent.emptied()
        async with Agent(server.address).running() as agent:
            await agent.failed("UNAUTHENTICATED: the call needs one headway-credential")
        async with Agent(server.address, seal=PaperSeal()).running() as agent:
            await agent.failed("UNAUTHENTICATED: MUNGE: invalid")
        async with Agent(server.address, seal=seal, controller_uid=77).running() as agent:
            await agent.failed("UNAUTHENTICATED: MUNGE: unauthorized")


async def test_only_users_that_may_be_agents_connect(store: ProfileStore) -> None:
    seal = PaperSeal(uid=1000)
    server = await started(AgentsServer(AgentsSettings("127.0.0.1:0", **PATIENT), store, seal))
    async with Agent(server.address, seal=seal).running() as agent:
        await agent.failed("PERMISSION_DENIED: uid 1000")
    await server.stop()
    settings = AgentsSettings("127.0.0.1:0", frozenset({0, 1000}), **PATIENT)
    async with (
        serving(AgentsServer(settings, store, seal)) as server,
        Agent(server.address, seal=seal).running() as agent,
    ):
        await agent.connected()


async def test_only_nodes_of_slurm_connect(store: ProfileStore, address: str) -> None:
    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None, knows={"n1"}.__contains__)
    async with serving(server), Agent(address, "n7").running() as agent:
        await agent.failed("PERMISSION_DENIED: there is no node n7")


async def test_no_more_nodes_connect_than_the_limit(store: ProfileStore, address: str) -> None:
    settings = AgentsSettings(address, max_nodes=1, **PATIENT)
    async with serving(AgentsServer(settings, store, None)), Agent(address, "n1").running() as one:
        await one.connected()
        async with Agent(address, "n2").running() as two:
            await two.failed("RESOURCE_EXHAUSTED: 1 agents are connected")
        assert one.link.status.connected


async def test_a_node_that_opens_streams_without_end_is_refused_and_another_is_not(
    store: ProfileStore, hostile: Callable[[], Hostile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial_rate, "_BURST", 3)
    monkeypatch.setattr(dial_rate, "_PER_S", 1e-6)
    for _ in range(3):
        caller = hostile()
        await caller.dial()
        assert isinstance(await caller.call.read(), agent_pb2.ControllerMessage)
    caller = hostile()
    await caller.dial()
    assert await caller.refused() == "RESOURCE_EXHAUSTED: n1 has opened too many streams; connect again later"
    other = hostile()
    await other.dial(good_hello(node="n2"))
    assert isinstance(await other.call.read(), agent_pb2.ControllerMessage)


@pytest.mark.parametrize("wrong", ["0.0.0.0:0", "head:9342", "nonsense"])
def test_beyond_this_machine_only_with_munge(store: ProfileStore, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="agents_address"):
        AgentsServer(AgentsSettings(wrong), store, None)
    if wrong != "nonsense":
        with pytest.raises(EndpointError, match="MUNGE"):
            Agent(wrong)


# --- clients that are no agents


class Hostile:
    """A client that can do anything with its stream."""

    def __init__(self, channel: grpc.aio.Channel, seal: PaperSeal | None, refusals: Sequence[str] = ()) -> None:
        """`refusals`: what the server has refused so far."""
        self._stub = agent_pb2_grpc.AgentsStub(channel)
        self._seal = seal
        self._refusals = refusals
        self.key = secrets.token_bytes(32)
        self.signer = Signer(None if seal is None else self.key, Direction.FROM_AGENT)
        self.call: Any = None
        self.metadata: tuple[tuple[str, str], ...] = ()

    async def dial(self, hello: agent_pb2.AgentHello | None = None, time_s: float | None = None) -> None:
        hello = good_hello() if hello is None else hello
        body = agent_pb2.AgentBody(hello=hello).SerializeToString()
        if self._seal is not None and not self.metadata:
            ticket = make_ticket(body, time.time() if time_s is None else time_s, self.key)
            self.metadata = ((METADATA_KEY, await self._seal.encode(ticket.pack())),)
        self.call = self._stub.Connect(metadata=self.metadata)
        await self.say(body)

    async def say(self, body: bytes, change: Callable[[agent_pb2.AgentMessage], None] = lambda _: None) -> None:
        number, mac = self.signer.sign(body)
        message = agent_pb2.AgentMessage(number=number, body=body, mac=mac)
        change(message)
        with suppress(grpc.aio.AioRpcError):  # refused before it was written: `refused` reads why
            await self.call.write(message)

    async def report(self, number: int, change: Callable[[agent_pb2.AgentMessage], None] = lambda _: None) -> None:
        report = agent_pb2.AgentReport(number=number, telemetry=agent_pb2.NodeTelemetry())
        body = agent_pb2.AgentBody(reports=agent_pb2.AgentReports(reports=[report]))
        await self.say(body.SerializeToString(), change)

    async def refused(self) -> str:
        """Code and reason of the end."""
        with pytest.raises(grpc.aio.AioRpcError):
            while await self.call.read() is not grpc.aio.EOF:
                pass
        # A call that is refused while it still sends its metadata asks gRPC for the status twice, and may get none.
        if await self.call.details() == "Internal error from Core":
            return self._refusals[-1]
        return f"{(await self.call.code()).name}: {await self.call.details()}"


def good_hello(**more: Any) -> agent_pb2.AgentHello:
    return agent_pb2.AgentHello(**{"node": "n1", "run_id": "a" * 32, "time_s": time.time(), **more})


@pytest.fixture
async def hostile(store: ProfileStore) -> AsyncIterator[Callable[[], Hostile]]:
    seal = PaperSeal()
    settings = AgentsSettings("127.0.0.1:0", silence_s=30.0, hello_timeout_s=30.0)
    async with (
        serving(AgentsServer(settings, store, seal)) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        refusals: list[str] = []
        note = server._refusals.note

        def noted(peer: str, error: RefusedError) -> None:
            refusals.append(f"{error.code.name}: {error}")
            note(peer, error)

        server._refusals.note = noted  # type: ignore[method-assign]
        yield lambda: Hostile(channel, seal, refusals)


async def test_a_hello_with_the_credential_of_another(hostile: Callable[[], Hostile]) -> None:
    client = hostile()
    body = agent_pb2.AgentBody(hello=good_hello()).SerializeToString()
    ticket = make_ticket(body + b"x", time.time(), client.key)
    client.metadata = ((METADATA_KEY, await client._seal.encode(ticket.pack())),)  # type: ignore[union-attr]
    await client.dial()
    assert "UNAUTHENTICATED: other hello" in await client.refused()


@pytest.mark.parametrize(("age_s", "reason"), [(3600, "too old"), (-3600, "from the future")])
async def test_a_credential_of_another_hour(hostile: Callable[[], Hostile], age_s: float, reason: str) -> None:
    client = hostile()
    await client.dial(time_s=time.time() - age_s)
    assert f"UNAUTHENTICATED: {reason}" in await client.refused()


async def test_a_recorded_stream_opens_nothing(hostile: Callable[[], Hostile]) -> None:
    # given a stream, recorded on the wire
    client, thief = hostile(), hostile()
    await client.dial()
    await client.call.read()
    client.call.cancel()
    # when it is played again
    thief.metadata, thief.key = client.metadata, client.key
    thief.signer = Signer(client.key, Direction.FROM_AGENT)
    await thief.dial()
    # then it is refused
    assert "UNAUTHENTICATED: replayed" in await thief.refused()


def _alter(message: agent_pb2.AgentMessage) -> None:
    message.body = message.body[:-1] + bytes([message.body[-1] ^ 1])


def _cut(message: agent_pb2.AgentMessage) -> None:
    message.body = message.body[:-1]


def _unsign(message: agent_pb2.AgentMessage) -> None:
    message.mac = b""


@pytest.mark.parametrize(("change", "reason"), [(_alter, "forged"), (_cut, "forged"), (_unsign, "malformed")])
async def test_an_altered_message_ends_the_stream_and_is_not_taken(
    hostile: Callable[[], Hostile], store: ProfileStore, change: Callable[[agent_pb2.AgentMessage], None], reason: str
) -> None:
    client = hostile()
    await client.dial()
    await client.report(1)
    await client.report(2, change)
    assert f"UNAUTHENTICATED: {reason}" in await client.refused()
    assert store.highest("n1", "a" * 32) <= 1


async def test_a_duplicated_message_ends_the_stream(hostile: Callable[[], Hostile]) -> None:
    client = hostile()
    await client.dial()
    sent: list[agent_pb2.AgentMessage] = []
    await client.report(1, sent.append)
    await client.call.write(sent[0])
    assert "UNAUTHENTICATED: repeated" in await client.refused()


async def test_a_message_left_out_ends_the_stream(hostile: Callable[[], Hostile]) -> None:
    client = hostile()
    await client.dial()
    client.signer.sign(b"lost on the way")
    await client.report(1)
    assert "UNAUTHENTICATED: skipped" in await client.refused()


@pytest.mark.parametrize(
    "hello",
    [
        {"node": ""},
        {"node": "../n1"},
        {"node": "n" * 65},
        {"run_id": ""},
        {"run_id": "z" * 32},
        {"boot_id": "\n"},
        {"time_s": float("nan")},
    ],
)
async def test_an_invalid_hello(hostile: Callable[[], Hostile], hello: dict[str, Any]) -> None:
    client = hostile()
    await client.dial(good_hello(**hello))
    assert "INVALID_ARGUMENT" in await client.refused()


async def test_reports_whose_numbers_do_not_rise(hostile: Callable[[], Hostile]) -> None:
    client = hostile()
    await client.dial()
    await client.report(2)
    await client.report(2)
    assert "INVALID_ARGUMENT: numbers of reports must rise" in await client.refused()


async def test_junk_and_a_second_hello(hostile: Callable[[], Hostile]) -> None:
    for body in (b"\xff\xff", agent_pb2.AgentBody(hello=good_hello()).SerializeToString()):
        client = hostile()
        await client.dial()
        await client.say(body)
        assert "INVALID_ARGUMENT" in await client.refused()


async def test_a_message_that_is_too_long(hostile: Callable[[], Hostile]) -> None:
    client = hostile()
    await client.dial()
    await client.say(b"x" * (300 << 10))
    assert "RESOURCE_EXHAUSTED" in await client.refused()


async def test_a_caller_that_sends_nothing_is_not_waited_for(store: ProfileStore) -> None:
    seal = PaperSeal()
    settings = AgentsSettings("127.0.0.1:0", silence_s=30.0, hello_timeout_s=0.5)
    async with (
        serving(AgentsServer(settings, store, seal)) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        client = Hostile(channel, seal)
        ticket = make_ticket(b"never said", time.time(), client.key)
        client.metadata = ((METADATA_KEY, await seal.encode(ticket.pack())),)
        client.call = client._stub.Connect(metadata=client.metadata)
        assert "DEADLINE_EXCEEDED: no hello in time" in await client.refused()


async def test_a_caller_that_keeps_calls_open_blocks_other_callers_only_briefly(
    store: ProfileStore,
) -> None:
    # Given a machine with as many calls that say nothing as it may have
    seal = PaperSeal()
    settings = AgentsSettings("127.0.0.1:0", max_opening_a_host=3, hello_timeout_s=1.0, silence_s=30.0)
    async with (
        serving(AgentsServer(settings, store, seal)) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        silent = []

        async def turned_away() -> bool:
            # One more that says nothing each time: of three dialled at once, the one after them may still be let in first.
            client = Hostile(channel, seal)
            ticket = make_ticket(b"never said", time.time(), client.key)
            metadata = ((METADATA_KEY, await seal.encode(ticket.pack())),)
            silent.append(client._stub.Connect(metadata=metadata))
            one = Hostile(channel, seal)
            await one.dial(good_hello(node="n2"))
            try:
                first = await one.call.read()
            except grpc.aio.AioRpcError as error:
                return "too many calls from 127.0.0.1" in (error.details() or "")
            one.call.cancel()
            return first is grpc.aio.EOF and "too many calls" in await one.call.details()

        await eventually(turned_away)
        # then an agent there comes in when these have been given up
        async with Agent(server.address, "n1", seal).running() as agent:
            await agent.connected()
        assert server.refused["RESOURCE_EXHAUSTED"] >= 1


async def test_a_connection_that_carries_no_call_is_closed(
    store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(QUIET_CONNECTIONS) | {"grpc.max_connection_idle_ms": 200, "grpc.server_handshake_timeout_ms": 200}
    monkeypatch.setattr("controller.agents.server.QUIET_CONNECTIONS", tuple(options.items()))
    seal = PaperSeal()
    async with serving(AgentsServer(AgentsSettings("127.0.0.1:0", **PATIENT), store, seal)) as server:
        host, _, port = server.address.rpartition(":")
        # Given one that says nothing, and one that speaks HTTP/2 and calls nobody
        for first in (b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(first)
            async with asyncio.timeout(25):  # sooner than without these options
                while await reader.read(4096):
                    pass
            writer.close()


_STANDS_STILL = """
import sys, time, grpc

def says_nothing():
    time.sleep(600)
    yield b""

call = grpc.insecure_channel(sys.argv[1]).stream_stream("/headway.v1.Agents/Connect")(says_nothing())
time.sleep(600)
"""
"""A program that opens a call, and says nothing."""


async def test_the_call_of_a_process_that_stands_still_ends_with_its_connection(
    store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given tests of connections a hundred times as often, and answered a hundred times as soon
    options = {
        name: value // 100 if "keepalive" in name or "ping" in name else value for name, value in QUIET_CONNECTIONS
    }
    monkeypatch.setattr("controller.agents.server.QUIET_CONNECTIONS", tuple(options.items()))
    settings = AgentsSettings("127.0.0.1:0", silence_s=600.0, hello_timeout_s=600.0)
    async with serving(AgentsServer(settings, store, None)) as server:
        command = [sys.executable, "-c", _STANDS_STILL, server.address]
        with subprocess.Popen(command) as client:
            try:
                await eventually(lambda: came(server, 1))
                # when the process is stopped, whose machine still acknowledges all that arrives
                client.send_signal(signal.SIGSTOP)
                # then its call ends, sooner than after gRPC's own 60 s, and its place is free
                async with asyncio.timeout(45):
                    while not await came(server, 0):
                        await asyncio.sleep(0.05)
            finally:
                client.kill()


async def came(server: AgentsServer, calls: int) -> bool:
    """Return whether so many calls have begun and said no hello."""
    return server._gate._opening.total() == calls


async def test_a_machine_that_opens_connections_without_end_keeps_no_agent_out(
    store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a machine that takes every place there is, with connections that say nothing, and takes each anew that it loses
    monkeypatch.setattr("controller.agents.server._SPARE_CONNECTIONS", 60)
    monkeypatch.setattr("controller.agents.server._CALM_FILES", 0)
    # (gRPC itself would let go of some of them only after a while)
    patient = dict(QUIET_CONNECTIONS) | {
        "grpc.max_connection_idle_ms": 3_600_000,
        "grpc.server_handshake_timeout_ms": 3_600_000,
    }
    monkeypatch.setattr("controller.agents.server.QUIET_CONNECTIONS", tuple(patient.items()))
    settings = AgentsSettings("127.0.0.1:0", max_nodes=4, max_connections_a_host=5, **PATIENT)
    seal = PaperSeal()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(AgentsServer(settings, store, seal)))
        first = await stack.enter_async_context(Agent(server.address, "n1", seal).running())
        await first.connected()
        port = int(server.address.rpartition(":")[2])

        async def hold() -> None:
            while True:
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                    try:
                        await reader.read()
                    finally:
                        writer.close()
                await asyncio.sleep(0.05)

        holding = [asyncio.create_task(hold()) for _ in range(200)]

        async def cut() -> bool:
            return server._connections.cut > 0

        try:
            await eventually(cut)
            # then agents come in, from that machine's neighbours and from itself, and those that are there stay
            async with Agent(server.address, "n2", seal).running() as second:
                async with asyncio.timeout(40):  # sooner than gRPC lets go of the others
                    await second.connected()
                assert first.link.status.streams == 1
        finally:
            for task in holding:
                task.cancel()
            await asyncio.gather(*holding, return_exceptions=True)


async def test_connections_with_an_agent_are_not_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ours, theirs = [], []
        for _ in range(10):
            ours.append(socket.create_connection(("127.0.0.1", port)))
            theirs.append(listener.accept()[0])
        ends = {client.getsockname() for client in ours[:3]}
        connections = Connections(port, 4, 0, lambda: ends)
        assert connections.close_excess(ends) == {"127.0.0.1": 3}
        for number, client in enumerate(ours):
            client.setblocking(False)
            if 3 <= number < 6:  # the oldest that carry none
                assert client.recv(1) == b""
            else:
                with pytest.raises(BlockingIOError):
                    client.recv(1)
        for server_end in theirs[3:6]:  # as gRPC does
            server_end.close()
        assert connections.close_excess(ends) == {}
        for each in (*ours, *theirs):
            each.close()


@pytest.mark.parametrize(
    ("peer", "end"),
    [
        ("ipv4:10.0.0.1:40112", ("10.0.0.1", 40112)),
        ("ipv6:%5Bfe80::1%25eth0%5D:7", ("fe80::1", 7)),
        ("ipv6:%5B::ffff:10.0.0.1%5D:7", ("10.0.0.1", 7)),
        ("unix:", None),
        ("unix-abstract:x", None),
    ],
)
def test_the_other_end_by_the_name_that_grpc_gives_it(peer: str, end: tuple[str, int] | None) -> None:
    assert end_of(peer) == end


async def test_an_agent_that_reads_nothing_delays_no_other(store: ProfileStore) -> None:
    # given a client that says hello and thousands of reports, and never reads
    seal = PaperSeal()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serving(AgentsServer(AgentsSettings("127.0.0.1:0", **PATIENT), store, seal))
        )
        rude = Hostile(await stack.enter_async_context(grpc.aio.insecure_channel(server.address)), seal)
        await rude.dial(good_hello(node="rude"))

        async def talk() -> None:
            for number in range(1, 100_000):
                await rude.report(number)

        talking = asyncio.create_task(talk())
        # then an agent beside it is served
        async with Agent(server.address, "n1", seal).running() as agent:
            for _ in range(200):
                agent.put()
            await agent.emptied()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        rude.call.cancel()


async def test_a_stream_that_breaks_at_its_beginning_leaves_nothing_behind(store: ProfileStore, address: str) -> None:
    """Between the hello and the welcome the node is written into the store: that may fail, or the agent may hang up."""
    noted, let_go = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        noted.set()
        let_go.wait(60)

    def broken(_node: str) -> None:
        raise ZeroDivisionError("a bug")

    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None)
    store.note_node = slow  # type: ignore[method-assign]

    async def gone() -> bool:
        return "n1" in server.nodes and not server.nodes["n1"].connected

    async with serving(server):
        async with Agent(address).running():
            assert await asyncio.to_thread(noted.wait, 60)
            assert server.nodes["n1"].connected
        try:
            await eventually(gone)
        finally:
            let_go.set()
        server.on_connect.append(broken)
        async with Agent(address, node="n2").running():

            async def seen() -> bool:
                return "n2" in server.nodes and server.nodes["n2"].streams > 1

            await eventually(seen)
            server.on_connect.remove(broken)
        assert not server._table.streams()


async def test_a_link_of_impossible_speed_costs_nothing(store: ProfileStore, address: str) -> None:
    class Odd(Agent):
        def hello(self) -> agent_pb2.AgentHello:
            hello = super().hello()
            hello.topology.nics.add(name="eth1", speed_bits_per_s=2**64 - 1)
            hello.topology.nics.add(name="eth2", speed_bits_per_s=2**63)
            return hello

    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None)

    async def gone() -> bool:
        return not server.nodes["n1"].connected

    async with serving(server):
        async with Odd(address).running() as agent:
            await agent.connected()
            agent.put()
            await agent.emptied()
        await eventually(gone)


async def test_a_topology_that_no_node_has_is_left_out(store: ProfileStore, address: str) -> None:
    class Odd(Agent):
        def hello(self) -> agent_pb2.AgentHello:
            hello = super().hello()
            hello.topology.gpus.extend([agent_pb2.GpuDevice(index=1, numa_node=0)] * 1000)
            return hello

    server = AgentsServer(AgentsSettings(address, **PATIENT), store, None)
    async with serving(server), Odd(address).running() as agent:
        await agent.connected()
        assert not server.nodes["n1"].topology.gpus


# --- pauses


async def test_a_server_that_is_away_is_tried_again_and_nothing_is_lost(store: ProfileStore, address: str) -> None:
    async with Agent(address).running() as agent:
        agent.put(keep=True)
        await agent.failed("UNAVAILABLE")
        async with serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None)):
            await agent.emptied()


async def let_in() -> None:
    """A connection that asyncio has let in comes to its handler by then: that takes turns of the loop, and no time."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_controller_that_hangs_is_given_up(address: str, tmp_path: Path) -> None:
    """It takes connections, and says nothing."""
    held = []
    listener = await asyncio.start_unix_server(lambda _, writer: held.append(writer), tmp_path / "a.sock")
    async with listener:
        async with Agent(address, dial_timeout_s=0.2).running() as agent:
            await agent.failed("no welcome in time")
        listener.close()
        await let_in()
        for writer in held:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def test_tls_with_a_private_ca(store: ProfileStore, tmp_path: Path) -> None:
    import shutil
    import subprocess

    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "1",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    seal = PaperSeal()
    settings = AgentsSettings("127.0.0.1:0", certificate=certificate, private_key=key, **PATIENT)
    async with serving(AgentsServer(settings, store, seal)) as server:
        async with Agent(server.address, seal=seal, ca_file=certificate).running() as agent:
            agent.put()
            await agent.emptied()
        async with Agent(server.address, seal=seal, dial_timeout_s=2.0).running() as agent:
            await agent.failed_somehow()
            assert agent.link.status.streams == 0
        with pytest.raises(ConfigurationError, match="certificate"):
            AgentsServer(replace(settings, private_key=None), store, seal)


async def test_throughputs_are_calculated_from_agents_reports(store: ProfileStore, address: str) -> None:
    """From two agents to a throughput: the whole way, but for the waiting."""
    now_s = time.time()
    job = Training(5, ("n1", "n2"), 4.0, start_s=now_s - 600)
    async with serving(AgentsServer(AgentsSettings(address, **PATIENT), store, None)) as server:
        for node in job.nodes:
            async with Agent(address, node).running() as agent:
                for at_s in range(-300, 0, 5):
                    agent.outbox.put(job.report(node, now_s + at_s))
                await agent.emptied()
        assert await server.use_store(lambda store: store.compute_windows(time.time() + 60)) >= 8
        found = await server.use_store(lambda store: list(store.throughputs()))
    assert len(found) >= 8
    assert all(item.steps_per_s == pytest.approx(4.0, rel=1e-3) and item.shape.nodes == 2 for item in found)


async def test_an_agent_calls_the_controller_that_works(store: ProfileStore, tmp_path: Path) -> None:
    """One of two controllers stands by, and serves no agents. Then they change places."""
    addresses = [f"unix://{tmp_path}/{name}.sock" for name in ("ctl1", "ctl2")]
    agent = Agent(addresses[0])
    agent.link = ControllerStream(
        StreamSettings(tuple(addresses), **QUICK), agent.hello, agent.outbox, agent.heed, agent.settings.append
    )
    async with agent.running():
        for address in (addresses[1], addresses[0]):
            async with serving(AgentsServer(AgentsSettings(address), store, None)) as server:
                await agent.connected()
                assert server.nodes["n1"].connected

            async def ended() -> bool:
                return not agent.link.status.connected

            await eventually(ended)
