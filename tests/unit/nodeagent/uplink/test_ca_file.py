"""Files that are no CA certificates do not stop the agent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from nodeagent.uplink.ca_file import read_ca_file
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import ControllerStream, StreamSettings
from policies.serving.runtime.tasks.task_groups import first_of
from protos.headway.v1 import agent_pb2


def test_a_file_of_usual_size_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(b"x" * (1 << 20))
    assert read_ca_file(path) == path.read_bytes()


def test_a_larger_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(OSError, match=r"larger than 1 MiB: '.*ca\.pem'"):
        read_ca_file(path)


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = {"pipe": tmp_path / "pipe", "endless": Path("/dev/zero"), "folder": tmp_path}[kind]
    with pytest.raises(OSError, match="not a regular file"):
        read_ca_file(path)


async def test_a_stream_with_such_a_file_ends_with_the_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ca.pem")
    dialled_again = asyncio.Event()
    dials: list[str] = []

    def hello() -> agent_pb2.AgentHello:
        dials.append(stream.status.last_error)
        if len(dials) > 1:
            dialled_again.set()
        return agent_pb2.AgentHello(node="n1")

    settings = StreamSettings(("127.0.0.1:1",), ca_file=tmp_path / "ca.pem", first_pause_s=0.001)
    stream = ControllerStream(settings, hello, Outbox(), lambda _: None)
    async with asyncio.timeout(60):
        await first_of(stream.run(), dialled_again.wait())
    assert "not a regular file" in dials[1]
