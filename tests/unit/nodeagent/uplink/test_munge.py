"""Credentials from a real munged."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nodeagent.uplink.munge import MAX_CREDENTIAL_CHARS, Munge, MungeError, MungeFault
from tests.unit.nodeagent.uplink.munged import running_munged, skip_without_munge


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    with running_munged() as (socket, _):
        yield socket


@pytest.fixture
async def munge(socket: Path) -> AsyncIterator[Munge]:
    munge = Munge(socket, deadline_s=60)
    yield munge
    munge.close()


async def fault_of(work: object) -> MungeFault:
    with pytest.raises(MungeError) as caught:
        await work  # type: ignore[misc]
    return caught.value.fault


@pytest.mark.parametrize("payload", [b"", b"x", b"\0zeros\0 are kept\0", os.urandom(5000)])
async def test_a_payload_comes_out_with_its_user_and_time(munge: Munge, payload: bytes) -> None:
    before_s = int(time.time() - 0.1)  # munged reads a clock that is behind by up to a tick of the kernel
    found = await munge.decode(await munge.encode(payload))
    assert found.payload == payload
    assert (found.uid, found.gid) == (os.geteuid(), os.getegid())
    assert before_s <= found.encode_time_s <= time.time()


async def test_the_payload_is_not_readable_in_the_credential(munge: Munge) -> None:
    import base64

    credential = await munge.encode(b"the session key " * 10)
    raw = base64.b64decode(credential.removeprefix("MUNGE:").rstrip(":\n"))
    assert b"session key" not in raw


async def test_a_credential_is_given_away_once(munge: Munge) -> None:
    credential = await munge.encode(b"once")
    await munge.decode(credential)
    assert await fault_of(munge.decode(credential)) is MungeFault.REPLAYED


async def test_for_another_uid_it_is_unreadable(munge: Munge) -> None:
    own = await munge.encode(b"me", only_uid=os.geteuid())
    assert (await munge.decode(own)).payload == b"me"
    other = await munge.encode(b"them", only_uid=os.geteuid() + 4242)
    assert await fault_of(munge.decode(other)) is MungeFault.UNAUTHORIZED


async def test_altered_and_made_up_credentials_are_invalid(munge: Munge) -> None:
    credential = await munge.encode(b"whole")
    middle = len(credential) // 2
    swapped = "A" if credential[middle] != "A" else "B"
    for wrong in (
        credential[:middle] + swapped + credential[middle + 1 :],
        credential[:middle],
        "MUNGE:nonsense:",
        "",
        "ü",
        "M" * (MAX_CREDENTIAL_CHARS + 1),
    ):
        assert await fault_of(munge.decode(wrong)) is MungeFault.INVALID


async def test_another_cluster_s_key_is_invalid(munge: Munge) -> None:
    with running_munged() as (elsewhere, _):
        stranger = Munge(elsewhere, deadline_s=60)
        credential = await stranger.encode(b"hello")
        stranger.close()
    assert await fault_of(munge.decode(credential)) is MungeFault.INVALID


async def test_without_munged_the_socket_is_named(tmp_path: Path) -> None:
    skip_without_munge()
    munge = Munge(tmp_path / "none", deadline_s=60)
    with pytest.raises(MungeError, match=f"{tmp_path}/none") as caught:
        await munge.encode(b"")
    assert caught.value.fault is MungeFault.NO_SOCKET
    munge.close()


async def test_a_hung_munged_costs_the_deadline_and_no_more() -> None:
    with running_munged() as (socket, process):
        munge = Munge(socket, deadline_s=0.2)
        process.send_signal(signal.SIGSTOP)
        # given calls that wait behind one that hangs
        faults = await asyncio.gather(*(fault_of(munge.encode(b"")) for _ in range(3)))
        assert set(faults) == {MungeFault.TIMEOUT}
        # when munged continues, so do the calls
        process.send_signal(signal.SIGCONT)
        for _ in range(100):
            try:
                await munge.encode(b"")
                break
            except MungeError as error:
                assert error.fault is MungeFault.TIMEOUT
        else:
            pytest.fail("it never came back")
        munge.close()


def test_a_hung_munged_does_not_keep_a_process_from_ending() -> None:
    with running_munged() as (socket, process):
        process.send_signal(signal.SIGSTOP)
        code = (
            "import asyncio, sys; from pathlib import Path; from nodeagent.uplink.munge import Munge, MungeError\n"
            "async def main():\n"
            "    try: await Munge(Path(sys.argv[1]), deadline_s=0.1).encode(b'')\n"
            "    except MungeError as error: print(error.fault.value)\n"
            "asyncio.run(main())\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(socket)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "timeout\n"), done.stderr


def test_without_the_library_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from nodeagent.uplink import munge

    munge._library.cache_clear()
    monkeypatch.setattr(munge, "LIBRARY", "libnone.so.0")
    try:
        with pytest.raises(MungeError, match="libmunge2") as caught:
            Munge()
        assert caught.value.fault is MungeFault.NO_LIBRARY
    finally:
        munge._library.cache_clear()
