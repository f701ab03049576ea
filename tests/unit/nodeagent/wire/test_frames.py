"""Frames: whatever a job sends is a frame or a FrameError."""

import contextlib
import itertools
import subprocess
import sys
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import FrameError
from nodeagent.wire.frames import (
    MAX_FRAME_BYTES,
    Bye,
    Checkpoint,
    Collective,
    Group,
    Hello,
    Model,
    NoProfile,
    Profile,
    Saved,
    Steps,
    Unknown,
    parse,
    profile_request,
    welcome,
)
from tests.unit.nodeagent.wire.packets import SIGNATURE, fields, packet


def test_every_type_is_read():
    assert parse(packet("hello", 3, rank=-1, device="cuda")) == Hello(
        3, 100, -1, 2, 0, "2.13.0", "cuda", "train.py", 0, "7", "1"
    )
    assert parse(packet("model")) == Model(0, 4_000_000, 4, 1_000_000, 1, (Group("default", 2, "gloo"),), SIGNATURE, -1)
    assert parse(packet("steps")) == Steps(0, 10, 1, 9, 10, 1.0)
    assert parse(packet("profile")) == Profile(0, 20, 0.2, 0.1, 0.1, 0.0, (Collective("all_reduce", 2.0, 4e6, 0.1),))
    assert parse(packet("no_profile")) == NoProfile(0, "graph")
    assert parse(packet("checkpoint", rank=1, start=40)) == Checkpoint(0, 1, 2, 40, -1, saving=False, open=True)
    assert parse(packet("saved", problem="no\nroom")) == Saved(0, "p1.1", 40, complete=True, problem="no?room")
    assert parse(packet("bye", 5)) == Bye(5)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("checkpoint", {"rank": 2}),
        ("checkpoint", {"world_size": 0}),
        ("checkpoint", {"saved": -2}),
        ("checkpoint", {"saving": 1}),
        ("saved", {"complete": None}),
        ("saved", {"step": -2}),
        ("saved", {"id": "p" * 256}),
        ("hello", {"loaded_ns": -1}),
        ("no_profile", {"reason": "graph\n"}),
        ("no_profile", {"reason": "because"}),
        ("no_profile", {"reason": None}),
    ],
)
def test_what_is_said_of_checkpoints_is_checked(kind, wrong):
    with pytest.raises(FrameError, match=next(iter(wrong))):
        parse(packet(kind, **wrong))


def test_what_is_not_known_is_ignored():
    assert parse(packet("gradient_norms", 2, anything=[1, {"a": None}])) == Unknown(2, "gradient_norms")
    assert parse(packet("bye", new_key={"b": [1.5]})) == Bye(0)
    kinds = {"ring_exchange": {"count": 1}, "other": {"count": 1, "bytes": 2, "seconds": 0}}
    assert parse(packet("profile", kinds=kinds)).kinds == (Collective("other", 1.0, 2.0, 0.0),)


def test_a_profile_may_tell_how_long_the_gpu_computes():
    assert parse(packet("profile", busy_s=0.05)).busy_s == 0.05
    assert parse(packet("profile")).busy_s is None
    with pytest.raises(FrameError, match="busy_s"):
        parse(packet("profile", busy_s=float("nan")))


def test_a_profile_may_tell_what_stays_within_the_node():
    used = {"count": 2.0, "bytes": 4e6, "seconds": 0.1}
    told = parse(
        packet("profile", kinds={"other": used | {"link_bytes": 1e6}}, local_exposed_s=0.05, local_hidden_s=0.0)
    )
    assert told.kinds == (Collective("other", 2.0, 4e6, 0.1, 1e6),)
    assert (told.local_exposed_s, told.local_hidden_s) == (0.05, 0.0)
    earlier = parse(packet("profile", kinds={"other": used}))
    assert earlier.kinds == (Collective("other", 2.0, 4e6, 0.1),)
    assert (earlier.kinds[0].link_bytes, earlier.local_exposed_s, earlier.local_hidden_s) == (None, None, None)


def test_the_job_id_may_be_text():
    assert parse(packet("hello", job_id="12_3")).job_id == "12_3"


def test_control_characters_do_not_reach_logs():
    assert parse(packet("hello", script="a\nb\x1b[31m")).script == "a?b?[31m"


def test_what_the_agent_sends_is_msgpack_with_the_design_s_keys():
    assert msgpack.unpackb(welcome(0, 1, 20)) == {
        "v": 1,
        "type": "welcome",
        "seq": 0,
        "interval_s": 1.0,
        "profile_steps": 20,
    }
    assert msgpack.unpackb(profile_request(4, 10)) == {"v": 1, "type": "profile", "seq": 4, "steps": 10}


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xc1",
        b"\x00",
        b"hello there",
        packet("bye") + b"\x00",
        packet("bye")[:-1],
        msgpack.packb([1, 2]),
        msgpack.packb({1: 2}),
        msgpack.packb({b"v": 1, b"type": b"bye", b"seq": 0}),
        b"\x82\xa1v\x01\xa1v\x01",  # the key v twice
        b"\x81\xa1v\x81\xa1a\x81\xa1b\x82\xa1c\x01\xa1c\x01",  # twice, in an inner map
        b"\x81\xa1v" + nested(60_000),
        b"\x81\xa1v" + b"\x81\xa1v" * 20_000 + b"\xc0",
        b"\xdf\xff\xff\xff\xff",  # a map of four billion entries
        b"\x81\xa1v\xdd\xff\xff\xff\xff",
        b"\x81\xa1v\xc7\x01\x05\x00",  # an extension
        b"\x81\xa1v\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\x81\xa1v\xa1\xff",  # not UTF-8
        packet("bye", v=2),
        packet("bye", v=True),
        packet("bye", v="1"),
        packet("bye", seq=-1),
        packet("bye", seq=2**63),
        packet("bye", seq=1.0),
        packet("hello", pid=0),
        packet("hello", rank=-2),
        packet("hello", rank=True),
        packet("hello", device="tpu"),
        packet("hello", script="x" * 256),
        packet("hello", script=b"train.py"),
        packet("hello", job_id=None),
        packet("steps", steps=0),
        packet("steps", steps=2**64 - 1),
        packet("steps", window_s=float("nan")),
        packet("steps", window_s=float("inf")),
        packet("steps", window_s=-0.5),
        packet("steps", first_ns=10),
        packet("model", signature="zz" * 32),
        packet("model", signature="ab"),
        packet("model", groups=[{"name": "g", "size": 1, "backend": "nccl"}] * 65),
        packet("model", groups=[1]),
        packet("model", groups={"name": "g"}),
        packet("profile", kinds=[1]),
        packet("profile", kinds={"all_reduce": 1}),
        packet("profile", kinds={"all_reduce": {"count": "2", "bytes": 1, "seconds": 1}}),
        packet("profile", kinds=[{"kind": "other", "count": 1, "bytes": 1, "seconds": 1}]),
        packet("profile", busy_s=None),
        packet("profile", local_exposed_s=None),
        packet("profile", local_hidden_s=-1.0),
        packet("profile", kinds={"other": {"count": 2, "bytes": 1, "seconds": 1, "link_bytes": None}}),
        packet("profile", kinds={"other": {"count": 2, "bytes": 1, "seconds": 1, "link_bytes": -1}}),
        packet("model", signature="ab" * 32 + "\n"),
        packet("model", more=[{"a": 1}] * 600),
        packet("bye") + packet("bye"),
        b"\x85" + packet("bye")[1:] + b"\xa1z\x81\x01\x01\xa1y\xa1\xff",  # in fields that are not read
        b"\x84" + packet("bye")[1:] + b"\xa1z\xa1\xff",
        b"\x84" + packet("bye")[1:] + b"\xa1z\xc7\x01\x05\x00",
        b"\x84" + packet("bye")[1:] + b"\xa3seq\x01",
        packet("profile", step_s=float("nan")),
    ],
    ids=itertools.count(),
)
def test_hostile_packets_are_frame_errors(bad):
    with pytest.raises(FrameError):
        parse(bad)


@pytest.mark.parametrize("key", ["device", "torch", "script", "job_id", "rank", "type", "v", "seq"])
def test_an_error_does_not_repeat_what_the_job_sent(key):
    with pytest.raises(FrameError) as error:
        parse(packet("hello", **{key: "sent by the job" * 40}))
    assert "sent" not in str(error.value)


@pytest.mark.parametrize("kind", ["hello", "model", "steps", "profile"])
def test_every_key_is_needed(kind):
    for key in fields(kind):
        short = fields(kind)
        del short[key]
        with pytest.raises(FrameError, match=key):
            parse(msgpack.packb(short))


def test_65536_bytes_are_a_frame_and_one_more_is_none():
    room = MAX_FRAME_BYTES - len(packet("bye", padding="x" * 65_000)) + 65_000
    full = packet("bye", padding="x" * room)
    assert len(full) == MAX_FRAME_BYTES
    assert parse(full) == Bye(0)
    with pytest.raises(FrameError, match="longer than"):
        parse(packet("bye", padding="x" * (room + 1)))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=12,
)
FRAMES = (Hello, Model, Steps, Profile, Checkpoint, Saved, Bye, Unknown)


@given(st.binary(max_size=400))
def test_noise(noise):
    with contextlib.suppress(FrameError):
        assert isinstance(parse(noise), FRAMES)


@given(st.sampled_from(["hello", "model", "steps", "profile", "checkpoint", "saved", "bye"]), st.data())
def test_a_good_frame_with_some_values_exchanged(kind, data):
    values = fields(kind)
    for key in data.draw(st.sets(st.sampled_from(sorted(values)), max_size=3)):
        values[key] = data.draw(VALUES)
    with contextlib.suppress(FrameError):
        assert isinstance(parse(msgpack.packb(values)), FRAMES)


@given(st.sampled_from(["hello", "model", "profile"]), st.data())
def test_a_good_frame_with_some_bytes_exchanged(kind, data):
    good = bytearray(packet(kind))
    for place in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=5)):
        good[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FrameError):
        assert isinstance(parse(bytes(good)), FRAMES)


def test_a_list_that_announces_many_entries_takes_no_room_for_them() -> None:
    deep = b"\xdc\xff\xff" * 900 + b"\x90" * 60_000
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            parse(deep)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 10e6


_FIRST_FRAMES = """
import sys, threading
from nodeagent.wire import frames
assert all("__msgspec_cache__" in vars(kind) for kind in (frames._Header, *frames._ROWS.values()))
sys.setswitchinterval(1e-6)
packets = [bytes.fromhex(packet) for packet in sys.argv[1:]]
begin = threading.Barrier(8)
def read():
    begin.wait()
    for packet in packets: frames.parse(packet)
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_may_read_the_first_frames_at_once() -> None:
    """With types that msgspec had not read before, 6 of 40 such processes crashed."""
    packets = [packet(kind).hex() for kind in ("hello", "model", "steps", "profile", "bye")]
    done = subprocess.run([sys.executable, "-c", _FIRST_FRAMES, *packets], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
