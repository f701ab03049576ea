"""The command line's client, and controllers that do not answer."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controller.cli import client as client_module
from controller.cli.client import UNREACHABLE, AdminClient, CallError
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
