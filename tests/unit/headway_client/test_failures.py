"""Failures between client and controller: each call ends in time, with an error that says what to do."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing
from pathlib import Path

import grpc.aio
import pytest
from headway_client import (
    AnswerTimeoutError,
    AnswerTooLargeError,
    ControllerError,
    HeadwayError,
    ProtocolError,
    Reason,
    RefusedError,
    UnavailableError,
    VersionError,
)
from headway_client.wire.call_end import CallEnd

from controller.admin.serve import serve_admin
from tests.unit.controller.worlds.controller_world import world_in
from tests.unit.headway_client.conftest import MakeClient
from tests.unit.headway_client.servers import (
    BEGINNING,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RESET,
    SETTLED,
    Handler,
    frame,
    message,
    serving,
    trailers,
)

SOON_S = 0.4


# --- a controller that is away


@pytest.mark.parametrize("there", ["nothing", "a dead socket", "a file", "a path that is too long"])
async def test_a_controller_that_is_away(folder: Path, connected: MakeClient, there: str) -> None:
    path = folder / ("s" if there != "a path that is too long" else "s" * 120)
    if there == "a dead socket":
        with closing(socket.socket(socket.AF_UNIX)) as dead:
            dead.bind(str(path))
    elif there == "a file":
        path.write_text("")
    async with connected(path) as client:
        for call in (client.status, client.listen, client.snapshot, lambda: client.why(1), lambda: client.preempt(1)):
            with pytest.raises(
                UnavailableError, match=r"no controller answers at .* Slurm schedules by itself"
            ) as caught:
                await call()
            assert str(path) in str(caught.value)
        with pytest.raises(UnavailableError):
            await client.wait(1, every_s=0.1, away_s=0.15)


async def test_a_controller_that_was_started_again_is_found_again(folder: Path, connected: MakeClient) -> None:
    world = world_in(folder)
    async with connected(folder / "status.sock") as client:
        for _ in range(2):
            async with serve_admin(world, folder, ""):
                assert (await client.status()).version
            with pytest.raises(UnavailableError):
                await client.status()


async def test_a_controller_that_hangs(folder: Path, connected: MakeClient) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(folder / "s"))
        server.listen(8)
        async with connected(folder / "s", timeout_s=SOON_S) as client:
            for call in (client.status, client.listen):
                begun_s = time.monotonic()
                with pytest.raises(AnswerTimeoutError, match=r"within 0\.4 s .*Jobs are not affected"):
                    await call()
                assert time.monotonic() - begun_s < 30


async def test_a_controller_that_takes_no_connections(folder: Path, connected: MakeClient) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(folder / "s"))
        server.listen(0)
        with closing(socket.socket(socket.AF_UNIX)) as first:
            first.connect(str(folder / "s"))  # the kernel's queue of one is full
            async with connected(folder / "s") as client:
                with pytest.raises(UnavailableError, match="accepts no connections at the moment"):
                    await client.status()


# --- answers that are no good


async def test_a_slow_answer_does_not_extend_the_time_limit(folder: Path, connected: MakeClient) -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in BEGINNING * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(folder / "s", drip), connected(folder / "s", timeout_s=SOON_S) as client:
        with pytest.raises(AnswerTimeoutError):
            await client.status()


def answering(text: bytes) -> Handler:
    """A server that sends that, when it has been asked; what comes before the settings is sent at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if text.startswith(SETTLED):
            writer.write(SETTLED)
            await reader.readuntil(b"Admin")
        writer.write(text.removeprefix(SETTLED))
        await writer.drain()
        await asyncio.sleep(60)

    return answer


async def test_an_answer_that_is_too_large_is_refused_by_its_announcement(folder: Path, connected: MakeClient) -> None:
    announced = answering(BEGINNING + message(b"x", length=(1 << 20) + 1))
    async with serving(folder / "s", announced), connected(folder / "s", max_answer_bytes=1 << 20) as client:
        with pytest.raises(AnswerTooLargeError, match="more than 1048576 bytes"):
            await client.status()


async def test_an_endless_answer_is_refused(folder: Path, connected: MakeClient) -> None:
    many = answering(BEGINNING + message(bytes(8_000)) * 7)  # as much as gRPC has room for at first
    async with serving(folder / "s", many), connected(folder / "s", max_answer_bytes=1 << 15) as client:
        with pytest.raises(AnswerTooLargeError, match="more than 32768 bytes"):
            await client.export_profiles()


GARBAGE: dict[str, tuple[bytes, type[HeadwayError]]] = {
    "HTTP/1": (b"HTTP/1.1 400 Bad Request\r\n\r\n", UnavailableError),
    "no HTTP": (b"\xff" * 100, UnavailableError),
    "headers of no table": (SETTLED + frame(HEADERS, END_HEADERS, 1, b"\xbe\xbe\xbe\xbe"), HeadwayError),
    "no gRPC": (SETTLED + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x8d"), HeadwayError),
    "a compressed message": (BEGINNING + message(b"x", compressed=1) + trailers(b"0"), HeadwayError),
    "no message": (BEGINNING + trailers(b"0"), ProtocolError),
    "no protobuf": (BEGINNING + message(b"\xff") + trailers(b"0"), ProtocolError),
    "a status that is no number": (BEGINNING + message(b"") + trailers(b"well"), HeadwayError),
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_in_place_of_an_answer(folder: Path, connected: MakeClient, what: str) -> None:
    text, kind = GARBAGE[what]
    limit_s = 60 if kind is ProtocolError else 2  # gRPC finds no fault with some of the others, and waits for more
    async with serving(folder / "s", answering(text)), connected(folder / "s", timeout_s=limit_s) as client:
        with pytest.raises(kind):
            await client.status()


BROKEN_OFF = {
    "at once": b"",
    "within the headers": BEGINNING[:-8],
    "after the headers": BEGINNING,
    "within the message": BEGINNING + message(b"x", length=9),
    "by a reset": SETTLED + frame(RESET, 0, 1, bytes([0, 0, 0, 7])),
}


@pytest.mark.parametrize("when", BROKEN_OFF)
async def test_a_connection_that_breaks(folder: Path, connected: MakeClient, when: str) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if BROKEN_OFF[when]:
            writer.write(SETTLED)
            await reader.readuntil(b"Admin")
        writer.write(BROKEN_OFF[when].removeprefix(SETTLED))

    async with serving(folder / "s", leave), connected(folder / "s", timeout_s=2) as client:
        with pytest.raises(UnavailableError):
            await client.status()


async def test_a_controller_of_another_version_is_told_from_one_that_is_away(
    folder: Path, connected: MakeClient
) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{folder}/s")
    await server.start()
    try:
        async with connected(folder / "s") as client:
            for call in (client.status, client.listen, lambda: client.preempt(1)):
                with pytest.raises(VersionError):
                    await call()
    finally:
        await server.stop(None)


def test_what_a_later_controller_says_is_still_an_error() -> None:
    code, later = grpc.StatusCode, Reason("on-fire")
    assert type(CallEnd(code.FAILED_PRECONDITION, "no", later).error(1)) is RefusedError
    assert type(CallEnd(code.UNAUTHENTICATED, "").error(1)) is ControllerError
    assert "UNAUTHENTICATED" in str(CallEnd(code.UNAUTHENTICATED, "").error(1))
    assert CallEnd(code.RESOURCE_EXHAUSTED, "x", later).error(1).reason == "on-fire"


async def test_a_large_answer_comes_all_or_nothing_at_all(folder: Path, connected: MakeClient) -> None:
    world = world_in(folder)
    for number in range(2000):
        world.sbatch(gpus_per_node=8, nodes=4, name=f"{number}-" + "x" * 100)
    await world.turn()
    async with serve_admin(world, folder, ""):
        async with connected(folder / "status.sock", timeout_s=60) as client:
            entries = (await client.queue()).entries
            assert len({entry.job_id for entry in entries}) == 2000
        async with connected(folder / "status.sock", max_answer_bytes=100_000, timeout_s=60) as client:
            with pytest.raises(AnswerTooLargeError):
                await client.queue()
            assert (await client.status()).jobs_waiting > 0
