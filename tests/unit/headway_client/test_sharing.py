"""Many calls at once, clients that are closed, and what is given to a client: limits, sockets, and the rights of its user."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import headway_client
import pytest
from headway_client import (
    AnswerTimeoutError,
    AsyncClient,
    BusyError,
    Client,
    ClosedError,
    HeadwayError,
    InvalidRequestError,
    Reason,
)
from headway_client.limits import MAX_CALLS
from headway_client.sockets import DEFAULT_FOLDER, Address

from controller.admin.serve import serve_admin
from tests.unit.controller.worlds.controller_world import world_in
from tests.unit.headway_client.conftest import MakeClient
from tests.unit.headway_client.servers import SETTLED, serving
from tests.unit.policies.processes import eventually

SOON_S = 0.4


# --- many calls at once, and clients that are closed


async def test_many_calls_at_once(folder: Path, connected: MakeClient) -> None:
    world = world_in(folder)
    for _ in range(20):
        world.sbatch(gpus_per_node=8)
    await world.turn()
    async with serve_admin(world, folder, ""), connected(folder / "status.sock", timeout_s=60) as client:
        found = await asyncio.gather(*(client.why(1 + number % 20) for number in range(100)))
    assert [each.job_id for each in found] == [str(1 + number % 20) for number in range(100)]


async def test_one_client_makes_only_so_many_connections(folder: Path, connected: MakeClient) -> None:
    open_now, most = 0, 0

    async def count(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        while await reader.read(1000):
            pass
        open_now -= 1

    async def all_are_used() -> bool:
        return most >= MAX_CALLS

    async with serving(folder / "s", count), connected(folder / "s", timeout_s=2.3) as client:
        calls = [asyncio.ensure_future(client.status()) for _ in range(3 * MAX_CALLS)]
        await eventually(all_are_used)
        await asyncio.sleep(0.3)
        assert most == MAX_CALLS
        problems = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(problem) for problem in problems} == {AnswerTimeoutError}


async def test_too_many_watchers_are_told_so(folder: Path) -> None:
    async with serve_admin(world_in(folder), folder, "") as _, AsyncClient(folder / "status.sock") as client:
        world = world_in(folder / "other")
        world.slurm_says(PrivateData="none")
        async with serve_admin(world, world.folder, ""), AsyncClient(world.folder / "status.sock") as other:
            streams = [other.events() for _ in range(8)]
            for stream in streams:
                await stream.open()
            with pytest.raises(BusyError) as caught:
                await other.events().open()
            assert caught.value.reason is Reason.TOO_MANY_WATCHERS
            streams[0].close()
            async with asyncio.timeout(30):
                while True:
                    with suppress(BusyError):
                        await other.events().open()
                        break
        assert (await client.status()).version


async def test_a_call_that_is_cancelled_leaves_nothing_behind(folder: Path) -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Of a call that is cancelled while its connection is made, gRPC may keep the connection; the controller ends one without a
        # call after half a minute.
        writer.write(SETTLED)
        received = b""
        while more := await reader.read(1000):
            received += more
            if b"GetStatus" in received:
                arrived.set()
        ended.set()

    async with serving(folder / "s", hang), AsyncClient(folder / "s", timeout_s=60) as client:
        asking = asyncio.create_task(client.status())
        await asyncio.wait_for(arrived.wait(), 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(ended.wait(), 30)


async def test_a_closed_client_asks_nothing_more(folder: Path, connected: MakeClient) -> None:
    async with connected(folder / "s") as client:
        client.client.close()
        client.client.close()
        for call in (client.status, client.listen, lambda: client.wait(1)):
            with pytest.raises(ClosedError):
                await call()


def test_threads_share_a_client_and_one_may_close_it(folder: Path) -> None:
    async def served(ready: threading.Event, done: threading.Event) -> None:
        world = world_in(folder)
        await world.turn()
        async with serve_admin(world, folder, ""):
            ready.set()
            await asyncio.to_thread(done.wait, 60)

    ready, done = threading.Event(), threading.Event()
    server = threading.Thread(target=lambda: asyncio.run(served(ready, done)))
    server.start()
    try:
        assert ready.wait(60)
        client = Client(folder / "admin.sock")
        streams = [client.events() for _ in range(4)]
        readers = [threading.Thread(target=list, args=(stream,)) for stream in streams]
        for reader in readers:
            reader.start()
        assert client.status().version
        client.close()
        for reader in readers:
            reader.join(30)
        assert not any(reader.is_alive() for reader in readers)
    finally:
        done.set()
        server.join()


# --- what is given to a client


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": 0},
        {"timeout_s": -1.0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"max_answer_bytes": 0},
    ],
)
async def test_limits_that_no_call_can_keep(connected: MakeClient, wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequestError, match="give"):
        async with connected("s", **wrong):
            pass


async def test_waits_that_make_no_sense(folder: Path, connected: MakeClient) -> None:
    async with connected(folder / "s") as client:
        for wrong in ({"every_s": 0.0}, {"timeout_s": 0.0}, {"timeout_s": float("nan")}):
            with pytest.raises(InvalidRequestError, match="give"):
                await client.wait(1, **wrong)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('partitions = ["dl"]\nruntime_dir = "/srv/headway"  # ours\n', "/srv/headway"),
        ("runtime_dir='/srv/h w'\n", "/srv/h w"),
        ('# runtime_dir = "/nowhere"\n', str(DEFAULT_FOLDER)),
        (None, str(DEFAULT_FOLDER)),
    ],
)
def test_the_sockets_are_found_as_the_command_line_finds_them(folder: Path, text: str | None, where: str) -> None:
    from controller.cli.client import _runtime_dir

    settings = folder / "controller.toml"
    if text is not None:
        settings.write_text(text)
        assert _runtime_dir(settings) == Path(where)
    address = Address(None, settings)
    assert address.candidates(admin=True) == [Path(where) / "admin.sock"]
    assert address.candidates(admin=False) == [Path(where) / "admin.sock", Path(where) / "status.sock"]
    assert Address("s", settings).candidates(admin=True) == [Path("s")]


def test_the_settings_may_be_named_by_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "controller.toml").write_text('runtime_dir = "/srv/hw"\n')
    monkeypatch.setenv("HEADWAY_CONFIG", str(folder / "controller.toml"))
    assert Address().candidates(admin=True) == [Path("/srv/hw/admin.sock")]
    assert Address(None, folder / "none.toml").candidates(admin=True) == [DEFAULT_FOLDER / "admin.sock"]
    monkeypatch.setenv("HEADWAY_CONFIG", "")
    monkeypatch.setattr("headway_client.sockets.DEFAULT_SETTINGS", folder / "controller.toml")
    assert Address().candidates(admin=True) == [Path("/srv/hw/admin.sock")]


def test_settings_that_are_not_understood_name_the_mend(folder: Path) -> None:
    (folder / "controller.toml").write_text('runtime_dir = "/srv/\\u0068"\n')
    with pytest.raises(InvalidRequestError, match=r"controller\.toml: .* give socket="):
        Address(None, folder / "controller.toml")


def test_every_error_is_documented_and_public() -> None:
    kinds = [
        kind
        for kind in vars(headway_client.errors).values()
        if isinstance(kind, type) and issubclass(kind, HeadwayError)
    ]

    assert {kind.__name__ for kind in kinds} <= set(headway_client.__all__)
    assert all(kind.__doc__ for kind in kinds)


AS_ANOTHER = """
import datetime, os, sys  # gRPC imports datetime late, when this user may not read it any more
from pathlib import Path
from headway_client import AsyncClient, Client, HeadwayError
from headway_client.sockets import Address
os.setgroups([]); os.setgid(1001); os.setuid(1001)
client = Client()
client._address = Address(None, Path(sys.argv[1]) / "controller.toml")
print(client.status().nodes_total)
for call in (client.queue, lambda: client.why(1), lambda: client.preempt(1), lambda: client.use_policy("x"), client.profiles):
    try:
        print("answered", call())
    except HeadwayError as error:
        print(type(error).__name__, error.reason)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as another user")
@pytest.mark.parametrize(("private", "queue"), [("jobs", "NotPermittedError jobs-private"), ("none", "answered Queue")])
async def test_another_user_sees_what_the_cluster_lets_users_see(folder: Path, private: str, queue: str) -> None:
    world = world_in(folder)
    await world.turn()
    world.slurm_says(PrivateData=private)
    (folder / "controller.toml").write_text(f'runtime_dir = "{folder}"\n')
    async with serve_admin(world, folder, ""):
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", AS_ANOTHER, str(folder)], capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(Path(headway_client.__file__).parents[1])},
        )  # fmt: skip
    assert done.stderr == ""
    nodes, *answers = done.stdout.splitlines()
    assert nodes == "4"
    assert answers[0].startswith(queue)
    assert answers[2] == ("NotFoundError unknown-job" if private == "none" else "NotPermittedError jobs-private")
    assert answers[3:] == ["NotPermittedError admin-only"] * 2
