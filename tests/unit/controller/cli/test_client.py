"""The command line's client, and controllers that do not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from headway_client import AnswerTimeoutError

from controller.cli import client as client_module
from controller.cli.client import UNREACHABLE, AdminClient, CallError
from controller.web import source
from protos.headway.v1 import admin_pb2


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@pytest.fixture
def silent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminClient]:
    """A client of a controller that takes connections and never answers; its time limits are short."""
    for name in ("_DEADLINE_S", "_SWAP_DEADLINE_S", "_AGENTS_DEADLINE_S", "_STORE_DEADLINE_S"):
        monkeypatch.setattr(client_module, name, 0.3)
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(folder / "s"))
        server.listen(8)
        with AdminClient(folder / "s") as client:
            yield client


CHANGES: dict[str, Callable[[AdminClient], Any]] = {
    "look at `headway preemptions`": lambda client: client.preempt(admin_pb2.PreemptRequest(job_id="7")),
    "look at `headway policy show`": lambda client: client.use_policy("unix:///other"),
    "look at `headway profile show 7`": lambda client: client.request_profile("7", None),
}


@pytest.mark.parametrize("where", CHANGES)
def test_a_change_without_an_answer_may_have_been_made(silent: AdminClient, where: str) -> None:
    with pytest.raises(CallError) as caught:
        CHANGES[where](silent)
    assert caught.value.exit_code == UNREACHABLE
    assert where in str(caught.value)
    assert "not affected" not in str(caught.value)


def test_a_change_whose_connection_is_lost_may_have_been_made(folder: Path) -> None:
    with AdminClient(folder / "nowhere") as client, pytest.raises(CallError, match="look at `headway preemptions`"):
        client.preempt(admin_pb2.PreemptRequest(job_id="7"))


def test_a_question_without_an_answer_says_that_jobs_are_not_affected(silent: AdminClient) -> None:
    with pytest.raises(CallError, match="Jobs are not affected"):
        silent.status()


# --- streams of events

STALLING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
from protos.headway.v1 import admin_pb2, admin_pb2_grpc

class Stalling(admin_pb2_grpc.AdminServicer):
    def WatchEvents(self, request, context):
        context.send_initial_metadata((("headway-listening", "1"),))
        yield admin_pb2.Event(text="first")
        threading.Event().wait()

server = grpc.server(ThreadPoolExecutor(4))
admin_pb2_grpc.add_AdminServicer_to_server(Stalling(), server)
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
print("ready", flush=True)
server.wait_for_termination()
"""
"""A controller that sends one event and stalls, in a process of its own."""


@contextmanager
def stalling(folder: Path) -> Iterator[tuple[Path, int]]:
    """Its socket and its process id."""
    process = subprocess.Popen([sys.executable, "-c", STALLING, str(folder / "e")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield folder / "e", process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_controller_that_never_accepts_a_stream_is_given_up(silent: AdminClient) -> None:
    for request in (admin_pb2.WatchEventsRequest(past_only=True), admin_pb2.WatchEventsRequest(until_s=1.0)):
        with pytest.raises(CallError, match="does not answer in time") as caught:
            list(silent.events(request))
        assert caught.value.exit_code == UNREACHABLE


def test_past_events_that_stall_are_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAST_DEADLINE_S", 2.0)
    with (
        stalling(folder) as (path, _),
        AdminClient(path) as client,
        pytest.raises(CallError, match="does not answer in time"),
    ):
        list(client.events(admin_pb2.WatchEventsRequest(past_only=True)))


def test_a_stream_ends_when_the_controller_no_longer_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PING_S", 1.0)
    monkeypatch.setattr(
        client_module, "_PONG_S", 8.0
    )  # so long the other process may answer no ping while this machine is busy
    with stalling(folder) as (path, pid), AdminClient(path) as client:
        events = client.events(admin_pb2.WatchEventsRequest())
        assert next(events).text == "first"
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(CallError, match="no controller answers"):
            next(events)


async def test_the_web_page_takes_no_stalled_events_for_all_events(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stalling(folder) as (path, _):
        monkeypatch.setattr(source, "_TIMEOUT_S", 2.0)
        with pytest.raises(AnswerTimeoutError, match="no end of them"):
            await asyncio.wait_for(source.Source(path).events("ann", "7"), 60.0)
