"""A client that sends requests only to servers of trusted users; the other user has uid 65534, so the tests run as root."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.base.clock import RealClock
from controller.cycle.decision.decider import Decider
from policies.api import load_policy
from policies.errors import PeerError, PolicyFault, PolicyServerError
from policies.serving.client import PolicyClient
from policies.serving.peers import TrustedUsers, owner_in, peer_uid
from policies.serving.relay import Relay
from policies.serving.runtime.address import parse_address
from tests.unit.open_files import open_files
from tests.unit.policies.processes import ROOT, eventually, serve_command
from tests.unit.policies.serving.test_server import DECIDED, STATE

NOBODY = 65534
ME = TrustedUsers(frozenset({os.getuid()}), "ask the tests")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may write."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        Path(path).chmod(0o777)
        yield Path(path)


@pytest.fixture(params=["unix", "127.0.0.1", pytest.param("[::1]", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, folder: Path) -> str:
    """A free address of each kind."""
    if request.param == "unix":
        return f"unix://{folder}/s.sock"
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((request.param.strip("[]"), 0))
        except OSError:
            pytest.skip(f"no {request.param} here")
        return f"{request.param}:{probe.getsockname()[1]}"


_AS_USER = """
import asyncio, os, sys
from policies.api import load_policy
from policies.serving.server import PolicyServer

async def main():
    server = PolicyServer(load_policy(sys.argv[1]), sys.argv[2])
    os.setgroups([]), os.setgid(int(sys.argv[3])), os.setuid(int(sys.argv[3]))
    await server.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""
"""The user is changed when everything is imported: the interpreter may lie in a folder that root alone may enter."""


@contextmanager
def serving(policy: str, address: str, *, user: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a policy server as a process of that user; None: of this one."""
    argv = serve_command(policy, address)
    if user is not None:
        argv = [sys.executable, "-c", _AS_USER, policy, address, str(user)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


async def fault_of(client: PolicyClient) -> PolicyServerError:
    with pytest.raises(PolicyServerError) as caught:
        await client.decide(STATE, 30.0)
    return caught.value


async def test_a_server_of_a_trusted_user_decides(address: str) -> None:
    with serving("las", address):
        async with PolicyClient(address, ME) as client:
            await eventually(client.healthy)
            assert (await client.decide(STATE, 60.0)).allocation == DECIDED
            assert (client.connection, client.connected) == (1, True)


async def test_the_reason_of_an_attempt_stays_until_the_next_one_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC may begin another attempt before the call fails for the last one."""
    relay = Relay(parse_address(f"unix://{folder}/s.sock"), ME)
    relay.problem, relay.refused = "its process belongs to nobody", True
    answer = asyncio.Event()

    async def connect() -> socket.socket:
        await answer.wait()
        raise FileNotFoundError(errno.ENOENT, "no such file")

    monkeypatch.setattr(relay, "_connect", connect)
    side: Any = SimpleNamespace(transport=SimpleNamespace(abort=lambda: None))
    attempt = asyncio.ensure_future(relay._open(side))
    await asyncio.sleep(0)
    assert (relay.problem, relay.refused) == ("its process belongs to nobody", True)
    answer.set()
    await attempt
    assert (relay.problem, relay.refused) == ("No such file or directory", False)


@needs_root
async def test_a_server_of_another_user_is_not_asked(address: str) -> None:
    with serving("las", address, user=NOBODY):
        async with PolicyClient(address) as client:
            await eventually(client.healthy)
        async with PolicyClient(address, ME) as client:
            error = await fault_of(client)
            assert error.fault is PolicyFault.UNTRUSTED
            assert f"uid {NOBODY}" in str(error)
            assert "ask the tests" in str(error)
            assert client.connection == 0
        async with PolicyClient(address, TrustedUsers(frozenset({NOBODY}), "")) as client:
            assert (await client.decide(STATE, 60.0)).allocation == DECIDED


@needs_root
async def test_another_user_at_the_address_of_a_dead_server_does_not_decide(address: str) -> None:
    """The server dies, another user listens at its address, and later the server is back."""
    if address.startswith("unix:"):
        pytest.skip("a socket file is not free for others")
    decider = Decider(PolicyClient(address, ME), load_policy("fifo"), 60.0, RealClock())
    with serving("las", address) as process:

        async def serves() -> bool:
            await decider.refresh()
            return decider.serving

        await eventually(serves)
        assert (await decider.decide(STATE)).policy == "las"
        process.kill()
        process.wait(30)
    with serving("las", address, user=NOBODY):
        async with PolicyClient(address) as client:
            await eventually(client.healthy)
        assert not decider.serving
        decided = await eventually(lambda: refused(decider))
        assert decided.policy == "fallback:fifo"
        await decider.refresh()
        assert not decider.serving
    await decider.close()
    assert "policy_users" not in decided.problem  # the mend is the settings' to say


async def refused(decider: Decider) -> object:
    """A decision of the fallback because of the server's user; None while there is none yet."""
    decided = await decider.decide(STATE)
    assert decided is not None
    assert decided.policy != "las"
    return decided if PolicyFault.UNTRUSTED.value in decided.problem else None


async def test_another_policy_at_the_same_address_is_known_by_its_own_name(address: str) -> None:
    """There was no call in between, so none failed."""
    decider = Decider(PolicyClient(address, ME), load_policy("fifo"), 60.0, RealClock())

    async def greeted() -> bool:
        await decider.refresh()
        return decider.serving

    with serving("las", address) as process:
        await eventually(greeted)
        assert (await decider.decide(STATE)).policy == "las"
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    with serving("srtf", address):
        async with PolicyClient(address) as client:
            await eventually(client.healthy)
        assert not decider.serving
        assert (await decider.decide(STATE)).policy == "srtf"
        assert decider.spec is not None
        assert decider.spec.name == "srtf"
    await decider.close()


async def test_a_server_that_is_stopped_or_killed_is_recognized_and_found_again(address: str) -> None:
    async with PolicyClient(address, ME) as client:
        for number in (1, 2):
            with serving("las", address) as process:
                await eventually(client.healthy)
                process.send_signal(signal.SIGSTOP)
                with pytest.raises(PolicyServerError) as caught:
                    await client.decide(STATE, 0.3)
                assert caught.value.fault is PolicyFault.DEADLINE
                process.send_signal(signal.SIGCONT)
                assert (await client.decide(STATE, 60.0)).allocation == DECIDED
                assert client.connection == number
                process.kill()
                process.wait(30)
                assert (await fault_of(client)).fault is PolicyFault.UNREACHABLE

        async def says_why() -> bool:
            """The call right after the kill may still meet the connection that is just being taken down."""
            problem = str(await fault_of(client))
            return "refused" in problem or "No such file" in problem

        await eventually(says_why)


async def test_a_server_that_accepts_no_connection_is_reported_as_unreachable(folder: Path) -> None:
    path = f"{folder}/s"
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as waiting:
        server.bind(path)
        server.listen(1)
        with pytest.raises(BlockingIOError):
            while True:
                early = waiting.enter_context(socket.socket(socket.AF_UNIX))
                early.setblocking(False)
                early.connect(path)
        async with PolicyClient(f"unix://{path}", ME) as client:
            error = await fault_of(client)
        assert (error.fault, "temporarily unavailable" in str(error)) == (PolicyFault.UNREACHABLE, True)


async def test_a_client_is_closed_with_calls_under_way(address: str) -> None:
    with serving("las", address) as process:
        client = PolicyClient(address, ME)
        await eventually(client.healthy)
        process.send_signal(signal.SIGSTOP)
        call = asyncio.ensure_future(client.decide(STATE, 60.0))
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(PolicyServerError):
            await call
        assert not client.connected


@pytest.mark.parametrize("turns", [1, 2, 3, 10])
async def test_a_relay_that_is_closed_while_it_dials_keeps_no_connection(turns: int) -> None:
    """The server listens and never accepts, so its owner is not known."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        await asyncio.to_thread(open_files)  # what asyncio opens once is open
        before = open_files()
        relay = Relay(parse_address(f"127.0.0.1:{server.getsockname()[1]}"), ME)
        await relay.start()
        reader, writer = await asyncio.open_unix_connection("\0" + relay.target.removeprefix("unix-abstract:"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns == 10:
            await asyncio.sleep(0.1)
        await relay.close()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(1), 60) == b""
        writer.close()

        async def nothing_is_left() -> bool:
            return open_files() <= before

        await eventually(nothing_is_left)


async def test_another_process_cannot_use_the_relay(folder: Path) -> None:
    path = folder / "s"

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"for the controller alone")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(greet, path):
        relay = Relay(parse_address(f"unix://{path}"), ME)
        await relay.start()
        name = relay.target.removeprefix("unix-abstract:")
        probe = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + sys.argv[1]); print(s.recv(9))"
        )
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-c", probe, name, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(stranger.communicate(), 60)
        assert b"for the" not in said
        reader, writer = await asyncio.open_unix_connection("\0" + name)
        assert await asyncio.wait_for(reader.readexactly(7), 60) == b"for the"
        writer.close()
        await relay.close()


async def test_large_messages_pass_and_a_slow_reader_holds_back_the_other_side(folder: Path) -> None:
    path, size = folder / "s", 20_000_000
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()
        writer.close()
        ended.set()

    async with await asyncio.start_unix_server(echo, path):
        relay = Relay(parse_address(f"unix://{path}"), ME)
        await relay.start()
        reader, writer = await asyncio.open_unix_connection("\0" + relay.target.removeprefix("unix-abstract:"))
        sent = os.urandom(1 << 10) * (size >> 10)

        async def send() -> None:
            writer.write(sent)
            await writer.drain()

        sending = asyncio.ensure_future(send())
        assert await asyncio.wait_for(reader.readexactly(len(sent)), 120) == sent
        await sending
        writer.close()
        await asyncio.wait_for(ended.wait(), 60)  # the other side learns that this one has closed
        await relay.close()


async def test_the_owner_of_a_connection_is_that_of_the_process_that_accepted_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        waiting = asyncio.ensure_future(peer_uid(client))
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done  # not accepted yet: it has no owner
        accepted, _ = listener.accept()
        with accepted:
            assert await asyncio.wait_for(waiting, 60) == os.getuid()


async def test_a_connection_to_itself_is_no_server() -> None:
    with socket.socket() as loop:
        loop.bind(("127.0.0.1", 0))
        loop.connect(loop.getsockname())
        with pytest.raises(PeerError, match="no server listens"):
            await peer_uid(loop)


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ("   0: 0100007F:C383 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 77 1\n", 1000),
        ("   0: 0100007F:C383 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 0 1\n", None),
        ("   0: 0100007F:9C40 0100007F:C383 01 00000000:00000000 00:00000000 00000000  1000        0 77 1\n", None),
        (
            "   0: 0000000000000000FFFF00000100007F:C383 0000000000000000FFFF00000100007F:9C40 01 "
            "00000000:00000000 00:00000000 00000000   12        0 77 1\n",
            12,
        ),
    ],
    ids=["accepted", "not accepted", "the client's end", "a socket of both families"],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the lines are of such a machine")
def test_rows_of_the_kernel_tables_are_parsed(line: str, owner: int | None) -> None:
    assert owner_in(line.encode(), ("127.0.0.1", 0xC383), ("127.0.0.1", 0x9C40)) == owner


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_cancelled_start_of_the_relay_frees_its_name(folder: Path, turns: int) -> None:
    relay = Relay(parse_address(f"unix://{folder}/s.sock"), ME)
    starting = asyncio.create_task(relay.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await relay.start()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect("\0" + relay.target.removeprefix("unix-abstract:"))
    await relay.close()
