"""The policy server over real gRPC: in this process on a Unix socket, and as the program that operators run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from policies.api import Decision, LearningStatus, Outcome, Policy, PolicySpec, load_policy, policy_names
from policies.errors import AddressError, ListenError, PolicyFault, PolicyServerError
from policies.model import ClusterState, Placement
from policies.serving.client import PolicyClient
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.server import SERVICE, PolicyServer, serve
from policies.wire.messages import serialize_state
from tests.unit.policies.processes import eventually, running, serve_command
from tests.unit.policies.states.cluster import Job, Node, cluster

STATE = cluster([Node()] * 2, [Job(gpus=8, occupied={0: 8}), Job(gpus=4), Job(gpus=16)], sequence=5)
DECIDED = {0: Placement((0,), (8,)), 1: Placement((1,), (4,))}
OUTCOME = Outcome("7", "ada", "train", 1.0, 2.0, 3.0, 4, 1, 1.0, "COMPLETED")


class Learning(Policy):
    """A policy with work in the background, which records what the server calls."""

    spec = PolicySpec(name="learning", source="tests")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def decide(self, state: ClusterState) -> Decision:
        return Decision({})

    def learn(self, outcome: Outcome) -> None:
        self.calls.append("learn")

    def begin(self) -> None:
        self.calls.append("begin")

    def end(self) -> None:
        self.calls.append("end")

    def learning(self) -> LearningStatus | None:
        return LearningStatus(history_jobs=self.calls.count("learn"))


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "policy.sock"


@asynccontextmanager
async def serving(policy: Policy, path: Path) -> AsyncIterator[PolicyClient]:
    server = PolicyServer(policy, f"unix://{path}")
    await server.start()
    try:
        async with PolicyClient(f"unix://{path}") as client:
            yield client
    finally:
        await server.stop(0.5)


class Script:
    """A policy that does what the test says, and records its calls."""

    spec = PolicySpec(name="script", source="tests", preempts=True, round_s=5.0, needs=frozenset({"profile"}))

    def __init__(self) -> None:
        self.learned: list[Outcome] = []
        self.error: BaseException | None = None
        self.go_on = threading.Event()
        self.go_on.set()
        self.started = threading.Event()
        self.calls = 0

    def decide(self, state: ClusterState) -> Decision:
        self.calls += 1
        self.started.set()
        self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        return Decision({1: Placement((1,), (4,))}, queue=(1, 2))

    def learn(self, outcome: Outcome) -> None:
        self.learned.append(outcome)


async def test_describes_decides_and_learns(socket_path: Path) -> None:
    policy = Script()
    async with serving(policy, socket_path) as client:
        assert await client.describe(30.0) == policy.spec
        assert await client.healthy(30.0)
        assert await client.decide(STATE, 30.0) == Decision({1: Placement((1,), (4,))}, queue=(1, 2))
        assert await client.learn([OUTCOME, OUTCOME], 60.0) == 2
        assert policy.learned == [OUTCOME, OUTCOME]


async def test_the_order_of_a_rule_with_its_options_is_described(socket_path: Path) -> None:
    async with serving(load_policy("las", {"order": "tier"}), socket_path) as client:
        spec = await client.describe(30.0)
    assert (
        spec.ordered_by == "by tier of their partition (order=tier), within a tier by GPU time used so far, least first"
    )


class WithOption(Script):
    """A policy of another package, with an option `rule` that is no rule of Headway."""

    rule = "shortest"


class WithoutBundle(Script):
    """A policy of another package whose attribute `rule` cannot be read."""

    @property
    def rule(self) -> str:
        raise OSError("no bundle")


@pytest.mark.parametrize("kind", [WithOption, WithoutBundle])
async def test_a_policy_whose_rule_is_something_else_is_described(socket_path: Path, kind: type[Script]) -> None:
    policy = kind()
    async with serving(policy, socket_path) as client:
        assert await client.describe(30.0) == policy.spec
        assert await client.decide(STATE, 30.0) == Decision({1: Placement((1,), (4,))}, queue=(1, 2))


async def test_work_in_the_background_begins_and_ends_with_the_server(socket_path: Path) -> None:
    policy = Learning()
    async with serving(policy, socket_path) as client:
        assert await client.learn([OUTCOME], 60.0) == 1
        assert (await client.describe(30.0)).learning == LearningStatus(history_jobs=1)
    assert policy.calls == ["begin", "learn", "end"]


async def test_outcomes_for_a_policy_that_does_not_learn_are_drained(socket_path: Path) -> None:
    async with serving(load_policy("fifo"), socket_path) as client:
        assert await client.learn([OUTCOME] * 1000, 60.0) == 1000


async def test_health_answers_while_the_policy_thinks(socket_path: Path) -> None:
    policy = Script()
    policy.go_on.clear()
    async with serving(policy, socket_path) as client:
        decision = asyncio.ensure_future(client.decide(STATE, 30.0))
        await asyncio.to_thread(policy.started.wait, 30)
        assert await client.healthy(30.0)
        assert await client.describe(30.0) == policy.spec
        policy.go_on.set()
        assert 1 in (await decision).allocation


async def test_calls_given_up_before_their_turn_are_not_worked_off(socket_path: Path) -> None:
    policy = Script()
    policy.go_on.clear()
    async with serving(policy, socket_path) as client:
        hanging = asyncio.ensure_future(client.decide(STATE, 30.0))
        await asyncio.to_thread(policy.started.wait, 30)
        for _ in range(3):
            with pytest.raises(PolicyServerError, match="deadline"):
                await client.decide(STATE, 0.05)
        policy.go_on.set()
        await hanging
        await client.decide(STATE, 30.0)
        # The hanging one, the last one, and at most a call whose end the server heard of too late.
        assert policy.calls <= 3


@pytest.mark.parametrize("error", [ValueError("no idea"), SystemExit(3)])
async def test_an_error_of_a_policy_is_reported_and_the_server_continues(
    socket_path: Path, error: BaseException
) -> None:
    policy = Script()
    policy.error = error
    async with serving(policy, socket_path) as client:
        with pytest.raises(PolicyServerError, match=f"{type(error).__name__}: {error}") as caught:
            await client.decide(STATE, 30.0)
        assert caught.value.fault is PolicyFault.FAILED
        policy.error = None
        assert 1 in (await client.decide(STATE, 30.0)).allocation


async def test_bad_bytes_are_invalid_arguments_that_name_the_field(socket_path: Path) -> None:
    async with serving(load_policy("fifo"), socket_path), grpc.aio.insecure_channel(f"unix:{socket_path}") as channel:
        decide, learn = channel.unary_unary(f"/{SERVICE}/Decide"), channel.stream_unary(f"/{SERVICE}/Learn")
        for data, text in (
            (b"\xff" * 100, "ClusterSnapshot"),
            (b"", "schema_version"),
            (b"\xff" * 10_000_000, "10000000 bytes"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await decide(data, timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text in str(caught.value.details())
        for data, text in ((b"\xff\xff", "Outcome"), (b"", "job_id")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await learn(iter([data]), timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text in str(caught.value.details())
        assert await decide(serialize_state(STATE), timeout=60)


async def test_the_socket_is_for_owner_and_group_only(socket_path: Path) -> None:
    async with serving(load_policy("fifo"), socket_path):
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o660
    assert not socket_path.exists()


async def test_a_stale_socket_is_replaced_and_a_live_one_is_not(socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path))
    async with serving(load_policy("fifo"), socket_path) as client:
        second = PolicyServer(load_policy("las"), f"unix://{socket_path}")
        with pytest.raises(ListenError, match="another server listens"):
            await second.start()
        await second.stop(0)
        assert (await client.describe(30.0)).name == "fifo"
        assert socket_path.exists()


async def test_a_server_that_ends_leaves_the_socket_of_the_next_one(socket_path: Path) -> None:
    # given a server that ends during a decision
    policy = Script()
    policy.go_on.clear()
    old, new = PolicyServer(policy, f"unix://{socket_path}"), PolicyServer(load_policy("fifo"), f"unix://{socket_path}")
    await old.start()
    async with PolicyClient(f"unix://{socket_path}") as client:
        call = asyncio.ensure_future(client.decide(STATE, 60.0))
        await asyncio.to_thread(policy.started.wait, 30)
        stopping = asyncio.ensure_future(old.stop(60.0))
        await eventually(lambda: asyncio.to_thread(lambda: not socket_path.exists()))
        # when the next one starts meanwhile, and the first has ended
        await new.start()
        policy.go_on.set()
        await call
        await stopping
    # then the next one is still found
    async with PolicyClient(f"unix://{socket_path}") as client:
        assert (await client.describe(30.0)).name == "fifo"
    await new.stop(0)
    assert not socket_path.exists()


async def test_a_file_that_is_not_a_socket_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for name, text in (("file", "not a socket"), ("missing/policy.sock", "no folder"), ("file/policy.sock", "folder")):
        server = PolicyServer(load_policy("fifo"), f"unix://{tmp_path}/{name}")
        with pytest.raises(ListenError, match=text):
            await server.start()
        await server.stop(0)
    assert (tmp_path / "file").read_text() == "precious"


async def test_loopback_ports_work_and_are_not_shared() -> None:
    server = PolicyServer(load_policy("fifo"), "127.0.0.1:0")
    await server.start()
    assert not server.address.endswith(":0")
    async with PolicyClient(server.address) as client:
        assert (await client.describe(30.0)).name == "fifo"
    second = PolicyServer(load_policy("fifo"), server.address)
    with pytest.raises(ListenError, match="another port"):
        await second.start()
    await second.stop(0)
    await server.stop(0)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:7000", "192.0.2.1:7000", "[::]:7000", "example.org:1", "unix:x.sock", "7000", ""]
)
def test_other_machines_are_not_served(address: str) -> None:
    with pytest.raises(AddressError):
        PolicyServer(load_policy("fifo"), address)


async def test_reflection_shows_the_whole_service(socket_path: Path) -> None:
    async with serving(load_policy("fifo"), socket_path):

        def ask() -> tuple[list[str], list[str]]:
            with grpc.insecure_channel(f"unix:{socket_path}") as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                service = DescriptorPool(database).FindServiceByName(SERVICE)
                return list(database.get_services()), [method.name for method in service.methods]

        services, methods = await asyncio.to_thread(ask)
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= set(services)
    assert methods == ["Describe", "Decide", "Learn"]


async def test_the_program_serves_says_so_to_systemd_and_stops_gracefully(socket_path: Path, tmp_path: Path) -> None:
    notify = tmp_path / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.settimeout(30)
        env = {"NOTIFY_SOCKET": str(notify), "WATCHDOG_USEC": "200000"}
        with running(*serve_command("las:round_s=60", f"unix://{socket_path}"), env=env) as process:
            assert "READY=1" in manager.recv(4096).decode()
            async with PolicyClient(f"unix://{socket_path}") as client:
                assert (await client.describe(30.0)).round_s == 60
                assert (await client.decide(STATE, 30.0)).allocation == DECIDED
                assert {manager.recv(4096).decode() for _ in range(4)} == {"WATCHDOG=1"}
                async with grpc.aio.insecure_channel(f"unix:{socket_path}") as channel:
                    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
                    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
                    process.send_signal(signal.SIGTERM)
                    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
                    watch.cancel()
            assert await asyncio.to_thread(process.wait, 60) == 0
            while "STOPPING=1" not in (message := manager.recv(4096).decode()):
                assert message == "WATCHDOG=1"
    assert not socket_path.exists()


async def test_a_call_in_flight_is_answered_before_the_server_ends(socket_path: Path) -> None:
    policy = Script()
    policy.go_on.clear()
    server = PolicyServer(policy, f"unix://{socket_path}")
    await server.start()
    async with PolicyClient(f"unix://{socket_path}") as client:
        decision = asyncio.ensure_future(client.decide(STATE, 30.0))
        await asyncio.to_thread(policy.started.wait, 30)
        stop = asyncio.ensure_future(server.stop(30))
        await asyncio.sleep(0.1)
        policy.go_on.set()
        assert 1 in (await decision).allocation
        await stop


async def test_a_policy_that_hangs_starves_the_watchdog_and_does_not_keep_the_server_from_ending(
    tmp_path: Path,
) -> None:
    """In a process of its own: the interpreter, too, must end while the policy's thread is stuck."""
    package = tmp_path / "stuck.py"
    package.write_text(
        "import time, sys\n"
        "from pathlib import Path\n"
        "from policies.serving import server\n"
        "from policies.api import Decision, PolicySpec\n"
        "import asyncio\n"
        "server.HUNG_AFTER_S = 0.2\n"
        "server.GRACE_S = 0.2\n"
        "class Stuck:\n"
        "    spec = PolicySpec(name='stuck', source='tests')\n"
        "    def decide(self, state):\n"
        "        Path(sys.argv[2]).touch()\n"
        "        time.sleep(600)\n"
        "asyncio.run(server.serve(Stuck(), sys.argv[1]))\n"
    )
    notify = tmp_path / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.settimeout(30)
        env = {"NOTIFY_SOCKET": str(notify), "WATCHDOG_USEC": "100000", "PYTHONPATH": os.pathsep.join(sys.path)}
        asked = tmp_path / "asked"
        with running(sys.executable, str(package), f"unix://{tmp_path}/s.sock", str(asked), env=env) as process:
            assert "READY=1" in manager.recv(4096).decode()
            async with PolicyClient(f"unix://{tmp_path}/s.sock") as client:

                async def stuck() -> bool:
                    with pytest.raises(PolicyServerError, match="deadline"):
                        await client.decide(STATE, 0.5)
                    return asked.exists()  # otherwise the call was given up before it came so far

                await eventually(stuck)
                # The last notifications arrive, and then there are no more.
                manager.settimeout(1.0)
                with pytest.raises(TimeoutError):
                    deadline = time.monotonic() + 20
                    while time.monotonic() < deadline:
                        await asyncio.to_thread(manager.recv, 4096)
                assert await client.healthy(30.0)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0


async def test_serve_ends_on_a_bad_address_before_it_says_ready(tmp_path: Path) -> None:
    notify = tmp_path / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        manager.setblocking(False)
        with pytest.raises(AddressError):
            await serve(load_policy("fifo"), "0.0.0.0:1", Notifier({"NOTIFY_SOCKET": str(notify)}))
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", "from policies.serving.cli.app import main; main()", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_list_names_every_policy() -> None:
    listed = json.loads(command("list", "--json").stdout)
    assert [policy["name"] for policy in listed["policies"]] == policy_names()
    assert all(policy["source"] for policy in listed["policies"])
    assert "(Schrage" in command("list").stdout


async def test_describe_asks_a_running_server(socket_path: Path) -> None:
    async with serving(load_policy("srtf"), socket_path):
        result = await asyncio.to_thread(command, "describe", f"unix://{socket_path}", "--json")
    reported = json.loads(result.stdout)
    assert (reported["name"], reported["preempts"], reported["needs"], reported["healthy"]) == (
        "srtf",
        True,
        ["duration_estimate"],
        True,
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["serve", "--policy", "nope", "--listen", "127.0.0.1:0"], "no policy is named 'nope'; installed: "),
        (["serve", "--policy", "las:round=1", "--listen", "127.0.0.1:0"], "round"),
        (["serve", "--policy", "las:round_s", "--listen", "127.0.0.1:0"], "key=value"),
        (["serve", "--policy", "las:round_s=soon", "--listen", "127.0.0.1:0"], "round_s"),
        (["serve", "--policy", "fifo", "--listen", "0.0.0.0:7000"], "unix:///path/to.sock"),
        (["serve", "--policy", "fifo", "--listen", "unix:///nowhere/at/all.sock"], "no folder /nowhere/at"),
        (["serve", "--policy", "fifo", "--listen", "127.0.0.1:0", "--log-format", "xml"], "console or json"),
        (["describe", "unix:///nowhere/at/all.sock"], "unreachable"),
    ],
)
def test_wrong_usage_is_answered_with_one_clear_line(arguments: list[str], text: str) -> None:
    result = command(*arguments)
    assert result.returncode == 1
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


async def test_programs_of_this_kind_still_see_a_server_restart(socket_path: Path) -> None:
    async with PolicyClient(f"unix://{socket_path}") as client:
        for name in ("fifo", "las"):
            with running(*serve_command(name, f"unix://{socket_path}")):
                await eventually(client.healthy)
                assert (await client.describe(30.0)).name == name
