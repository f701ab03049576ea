"""A file or message of a later version is refused before the rest is read; the error names the version, and the file stays."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgpack
import pytest
from headway_job.checkpoints.errors import Refused

from controller.profiles.store import ProfileStore
from controller.state.journal import Journal
from nodeagent.errors import FrameError
from nodeagent.uplink.session import SessionError
from nodeagent.wire import frames
from policies.errors import TrainingError, WeightsError, WireError
from policies.wire import messages
from protos.headway.v1 import policy_pb2, snapshot_pb2
from simulator.errors import SlowdownError
from tests.fuzz.targets import TARGETS, agent_stream, controller, policy

FUTURE = 99


@pytest.mark.parametrize(
    ("name", "error", "key"),
    [
        ("checkpoint-manifests", Refused, "format"),
        ("weight-cards", WeightsError, "format"),
        ("training-settings", TrainingError, "format"),
        ("profiles-json", SlowdownError, "format"),
    ],
)
@pytest.mark.parametrize("version", [FUTURE, "1", [1], None, 1.5, True])
def test_documents(name: str, error: type[Exception], key: str, version: object, tmp_path: Path) -> None:
    # Given a document of another version, in which everything else has changed too
    target = TARGETS[name]
    if error is Refused:
        pytest.importorskip("torch")
    data = json.dumps({key: version, "else": {"nothing": [1]}}).encode()
    path = tmp_path / (target.file or "unused")
    path.write_bytes(data)
    # When it is read, then the error names the version, and the file is still there
    with pytest.raises(error, match="format"):
        target.take(data, tmp_path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("make", "open_file", "name"),
    [
        (controller.journals, lambda path: Journal(path).close(), "journal.sqlite"),
        (controller.stores, lambda path: ProfileStore(path).close(), "profiles.sqlite"),
    ],
    ids=["journal", "profiles"],
)
def test_databases(
    make: Callable[[], list[bytes]], open_file: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "state" / name
    path.parent.mkdir(mode=0o700)
    path.write_bytes(make()[0])
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FUTURE}")
    before = path.read_bytes()
    open_file(path)
    (aside,) = (each for each in path.parent.glob(f"{name}.schema-{FUTURE}-*") if each.suffix.endswith("Z"))
    assert aside.read_bytes() == before


def test_frames_of_jobs() -> None:
    with pytest.raises(FrameError, match="v"):
        frames.parse(msgpack.packb({"v": FUTURE, "type": "hello", "seq": 0}))


def test_snapshots_and_policies() -> None:
    message = snapshot_pb2.ClusterSnapshot.FromString(policy.states()[0])
    message.schema_version = FUTURE
    with pytest.raises(WireError, match=rf"schema_version: is {FUTURE}; this policy reads version"):
        messages.parse_state(message.SerializeToString())
    with pytest.raises(WireError, match="the policy reads snapshots of version 99 to 99"):
        messages.decode_spec(
            policy_pb2.PolicyDescription(name="a", min_schema_version=FUTURE, max_schema_version=FUTURE)
        )


def test_credentials() -> None:
    ticket = agent_stream.tickets()[0]
    with pytest.raises(SessionError, match="not one of Headway"):
        agent_stream.read_ticket(b"HWA9" + ticket[4:], Path())
