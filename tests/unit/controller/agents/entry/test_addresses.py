"""The check that a stream comes from the node that it names: streams that are refused, and streams that pass."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import grpc.aio
import pytest

from controller.agents.entry.addresses import AgentAddresses, Check
from controller.agents.entry.admission import Admission
from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.profiles.store import ProfileStore
from nodeagent.uplink.session import Direction, ReplayCache, Signer, make_ticket
from protos.headway.v1 import agent_pb2
from tests.unit.controller.agents.test_server import Hostile, PaperSeal, good_hello, serving
from tests.unit.policies.processes import eventually

NODES = {"n1": "10.0.0.1", "n2": "n2.cluster", "n3": "n3.cluster", "n4": "fd00::4", "n5": ""}
NAMES = {"n2.cluster": ["10.0.0.2", "192.168.0.2"], "n3.cluster": ["10.0.0.3"]}


class Names:
    def __init__(self) -> None:
        self.lookups: list[str] = []
        self.away = False

    def __call__(self, name: str) -> list[str]:
        self.lookups.append(name)
        if self.away or name not in NAMES:
            raise OSError("no such name")
        return NAMES[name]


def checked(check: Check, names: Names | None = None) -> AgentAddresses:
    return AgentAddresses(lambda: NODES, check, names or Names())


@pytest.mark.parametrize(
    ("node", "peer", "automatic", "required"),
    [
        ("n1", "ipv4:10.0.0.1:4000", True, True),
        ("n1", "ipv6:%5B::ffff:10.0.0.1%5D:4000", True, True),
        ("n2", "ipv4:192.168.0.2:4000", True, True),
        ("n4", "ipv6:%5Bfd00::4%5D:4000", True, True),
        # another node's address, literal or by name
        ("n1", "ipv4:10.0.0.3:4000", False, False),
        ("n2", "ipv4:10.0.0.1:4000", False, False),
        ("n4", "ipv4:192.168.0.2:4000", False, False),
        # of no node: behind a translator, or a second interface
        ("n1", "ipv4:172.16.0.9:4000", True, False),
        ("n5", "ipv4:172.16.0.9:4000", True, False),
        # this machine, and nodes that Slurm has not listed
        ("n1", "unix:", True, True),
        ("n1", "ipv4:127.0.0.1:4000", True, True),
        ("n9", "ipv4:10.0.0.1:4000", True, True),
    ],
)
async def test_only_a_nodes_own_address_may_be_its_agent(node: str, peer: str, automatic: bool, required: bool) -> None:
    assert (await checked("automatic").problem(node, peer) == "") is automatic
    assert (await checked("required").problem(node, peer) == "") is required
    assert await checked("off").problem(node, peer) == ""


async def test_the_text_names_the_node_that_calls() -> None:
    problem = await checked("automatic").problem("n1", "ipv4:10.0.0.3:4000")
    assert problem == "the call comes from 10.0.0.3, which is the address of n3"


async def test_names_are_looked_up_once_in_a_while_and_one_that_is_lost_keeps_its_addresses() -> None:
    now_s, names = 1000.0, Names()
    addresses = AgentAddresses(lambda: NODES, "required", names, lambda: now_s)
    for _ in range(3):
        assert await addresses.problem("n2", "ipv4:10.0.0.2:1") == ""
    assert names.lookups == ["n2.cluster"]
    now_s, names.away = 2000.0, True
    assert await addresses.problem("n2", "ipv4:10.0.0.2:1") == ""
    assert names.lookups == ["n2.cluster"] * 2


async def test_names_of_nodes_that_have_left_are_not_kept() -> None:
    names, nodes = Names(), {"n1": "n1.cluster"}
    addresses = AgentAddresses(lambda: nodes, "required", names)
    for number in range(50):
        nodes["n1"] = f"host{number}.cluster"
        await addresses.problem("n1", "ipv4:10.0.0.2:1")
    assert len(names.lookups) == 50
    assert len(addresses._known) <= len(nodes) + 1


async def test_a_call_from_no_nodes_address_is_cheap_once_the_nodes_are_known() -> None:
    # given a large cluster, half of it known by name, whose agents dial from another network
    now_s, lookups, nodes = 1000.0, [], {f"n{i}": f"n{i}.cluster" if i % 2 else f"10.0.0.{i}" for i in range(200)}

    def look_up(name: str) -> list[str]:
        lookups.append(name)
        return [f"10.0.1.{name.partition('.')[0][1:]}"]

    addresses = AgentAddresses(lambda: dict(nodes), "automatic", look_up, lambda: now_s)
    assert await addresses.problem("n1", "ipv4:172.16.0.9:4000") == ""
    assert len(lookups) == 100
    # when more of them dial, then no name is looked up, and none is gone through
    gone_through: list[str] = []
    real = addresses._addresses
    addresses._addresses = lambda name: gone_through.append(name) or real(name)  # type: ignore[method-assign, func-returns-value]
    assert await addresses.problem("n3", "ipv4:172.16.0.9:4000") == ""
    assert gone_through == ["n3.cluster"]
    assert len(lookups) == 100
    assert "the address of n5" in await addresses.problem("n3", "ipv4:10.0.1.5:4000")
    # and a node that comes later is known too
    nodes["n201"] = "n201.cluster"
    assert "the address of n201" in await addresses.problem("n3", "ipv4:10.0.1.201:4000")
    assert len(lookups) == 101
    # nor is it for ever
    now_s = 2000.0
    await addresses.problem("n3", "ipv4:172.16.0.9:4000")
    assert len(lookups) == 202


# --- at the door


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        yield store


async def test_a_stream_from_another_node_is_refused(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seal, addresses = PaperSeal(), checked("automatic")
    settings = AgentsSettings("127.0.0.1:0", silence_s=30.0)
    problem = addresses.problem
    monkeypatch.setattr(addresses, "problem", lambda node, _peer: problem(node, "ipv4:10.0.0.3:4000"))
    async with (
        serving(AgentsServer(settings, store, seal, addresses=addresses)) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        client = Hostile(channel, seal)
        await client.dial(good_hello(node="n1"))
        assert "PERMISSION_DENIED: the call comes from 10.0.0.3, which is the address of n3" in await client.refused()
        assert server.nodes == {}


async def test_a_ticket_from_the_future_does_not_stay_the_newest(store: ProfileStore) -> None:
    # given somebody who has taken a node's stream with a ticket of the next minute
    seal = PaperSeal()
    settings = AgentsSettings("127.0.0.1:0", silence_s=30.0)
    async with (
        serving(AgentsServer(settings, store, seal)) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        thief, owner = Hostile(channel, seal), Hostile(channel, seal)
        await thief.dial(good_hello(run_id="b" * 32), time_s=time.time() + 50)
        assert isinstance(await thief.call.read(), agent_pb2.ControllerMessage)
        # when the node itself dials, then it has its place again
        await owner.dial()
        assert isinstance(await owner.call.read(), agent_pb2.ControllerMessage)
        assert server.nodes["n1"].run_id == "a" * 32
        assert "ABORTED: n1 has opened a newer stream" in await thief.refused()


async def test_dials_that_are_refused_use_up_no_memory_of_credentials(store: ProfileStore) -> None:
    # given a controller that has as many agents as it may, and remembers few credentials
    seal = PaperSeal()
    settings = AgentsSettings("127.0.0.1:0", silence_s=600.0, max_nodes=1)
    agents = AgentsServer(settings, store, seal)
    agents._admission._replays = ReplayCache(limit=8)
    async with serving(agents) as server, grpc.aio.insecure_channel(server.address) as channel:
        first = Hostile(channel, seal)
        await first.dial()
        assert isinstance(await first.call.read(), agent_pb2.ControllerMessage)
        # when another one dials in vain for long
        for _ in range(10):
            late = Hostile(channel, seal)
            await late.dial(good_hello(node="n2"))
            assert "1 agents are connected" in await late.refused()
        # then it is admitted when there is room
        first.call.cancel()

        async def gone() -> bool:
            return not server.nodes["n1"].connected

        await eventually(gone)
        late = Hostile(channel, seal)
        await late.dial(good_hello(node="n2"))
        assert isinstance(await late.call.read(), agent_pb2.ControllerMessage)


async def test_only_a_node_at_its_own_address_has_a_share_of_its_own() -> None:
    nodes = {"n1": "10.0.0.1", "n2": "two.example"}
    addresses = AgentAddresses(lambda: nodes, "automatic", lambda _name: ["10.0.0.2"])
    addresses._threads._within_s = 60.0
    calls = [("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("n1", "10.0.0.2"), ("n3", "10.0.0.1"), ("n1", "192.0.2.1")]
    assert [await addresses.is_of(node, f"ipv4:{at}:4000") for node, at in calls] == [True, True, False, False, False]
    assert not await AgentAddresses(lambda: nodes, "off").is_of("n1", "ipv4:10.0.0.1:4000")


def test_a_stream_is_dated_no_later_than_it_came() -> None:
    body = agent_pb2.AgentBody(hello=good_hello()).SerializeToString()
    key = b"k" * 32
    number, mac = Signer(key, Direction.FROM_AGENT).sign(body)
    first = agent_pb2.AgentMessage(number=number, body=body, mac=mac)
    admission = Admission(None, frozenset({0}), now=lambda: 1000.0)
    assert admission.admit(make_ticket(body, 1050.0, key), first).called_s == 1000.0
    assert admission.admit(make_ticket(body, 990.0, key), first).called_s == 990.0


async def test_a_dead_name_service_takes_no_more_threads_than_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up that is given up goes on in its thread; the controller's calls of Slurm need the other threads."""
    monkeypatch.setattr("controller.agents.entry.addresses._WITHIN_S", 0.02)
    answered, busy, most = threading.Event(), 0, 0

    def never(_name: str) -> list[str]:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        answered.wait(120)
        busy -= 1
        raise OSError("dead")

    async def all_are_asked_for() -> bool:
        for node in nodes:
            assert "not known" in await addresses.problem(node, "ipv4:10.0.0.1:4000")
        return most >= 2  # a look-up may be given up before its thread begins

    nodes = {f"n{number}": f"host{number}.example" for number in range(20)}
    addresses = AgentAddresses(lambda: nodes, "required", never)
    try:
        await eventually(all_are_asked_for)
        assert "not known" in await addresses.problem("n0", "ipv4:10.0.0.1:4000")
        assert most == 2
        assert await asyncio.to_thread(lambda: "a thread is free") == "a thread is free"
    finally:
        answered.set()
