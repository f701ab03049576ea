"""Messages of the client are those of admin.proto: same names, numbers and kinds, and the same bytes."""

from __future__ import annotations

import copy
import inspect
import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import headway_client as public
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from headway_client import EventKind, InvalidRequestError, JobState, ProtocolError
from headway_client.answers import jobs, preemptions, profiles, reports, requests, slowdown_rows, status, usage
from headway_client.answers.kinds import Flag, Many, Maybe, Number, Real, Sub, Table, Text
from headway_client.answers.message import Message
from headway_client.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, field, varint
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.headway.v1 import admin_pb2 as pb

MODULES = (jobs, preemptions, profiles, reports, requests, slowdown_rows, status, usage)
MESSAGES: dict[str, type[Message]] = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if inspect.isclass(value) and issubclass(value, Message) and value is not Message
}
WITHOUT_WORDS = {"GetStatusRequest", "GetQueueRequest", "GetPolicyRequest", "GetUsageRequest"}
_CASES = sorted(MESSAGES.keys() - {"EmptyRequest"})


def descriptor(name: str) -> Descriptor:
    found: Descriptor = getattr(pb, name).DESCRIPTOR
    return found


def kind_in_proto(found: FieldDescriptor) -> str:
    """The kind of a field, by its descriptor."""
    if found.message_type is not None and found.message_type.GetOptions().map_entry:
        return f"table of {kind_in_proto(found.message_type.fields_by_name['value'])}"
    names = {
        FieldDescriptor.TYPE_DOUBLE: "real",
        FieldDescriptor.TYPE_UINT32: "number 32",
        FieldDescriptor.TYPE_UINT64: "number 64",
        FieldDescriptor.TYPE_BOOL: "flag",
        FieldDescriptor.TYPE_STRING: "text",
        FieldDescriptor.TYPE_MESSAGE: "message",
    }
    name = names[found.type]
    if name == "message":
        name = f"message {found.message_type.name}"
    if found.is_repeated:
        return f"many of {name}"
    return f"maybe {name}" if found.has_presence and found.containing_oneof is not None else name


def kind_in_client(kind: Any) -> str:
    """The kind of a field, by the client's description of it."""
    match kind:
        case Table():
            return f"table of {kind_in_client(kind._kind)}"
        case Many():
            return f"many of {kind_in_client(kind._kind)}"
        case Maybe(_kind=Sub()):
            return kind_in_client(kind._kind)
        case Maybe():
            return f"maybe {kind_in_client(kind._kind)}"
        case Sub():
            return f"message {kind._message.__name__}"
        case Number():
            return f"number {kind._end.bit_length() - 1}"
        case Real():
            return "real"
        case Flag():
            return "flag"
        case Text():
            return "text"
    raise AssertionError(kind)


def client_fields(message: type[Message]) -> dict[str, tuple[int, str]]:
    found = fields(message)  # type: ignore[arg-type]
    return {each.name: (each.metadata["number"], kind_in_client(each.metadata["headway"])) for each in found}


def test_every_message_of_the_protocol_is_there() -> None:
    assert MESSAGES.keys() - {"EmptyRequest"} == set(pb.DESCRIPTOR.message_types_by_name) - WITHOUT_WORDS
    assert all(not descriptor(name).fields for name in WITHOUT_WORDS)


@pytest.mark.parametrize("name", _CASES)
def test_fields_are_those_of_the_protocol(name: str) -> None:
    there = {each.name: (each.number, kind_in_proto(each)) for each in descriptor(name).fields}

    assert client_fields(MESSAGES[name]) == there


def test_every_answer_is_public() -> None:
    answers = {name for name in MESSAGES if not name.endswith("Request")}

    assert answers <= set(public.__all__)
    assert public.__all__ == sorted(public.__all__)


# --- the same bytes


_TEXTS = st.text(max_size=8)
_SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: _TEXTS,
}


def values(of: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Any message, as keyword arguments for the generated class. Some fields are left out."""
    return st.fixed_dictionaries({}, optional={each.name: _value(each) for each in of.fields})


def _value(found: FieldDescriptor) -> st.SearchStrategy[Any]:
    if found.message_type is not None and found.message_type.GetOptions().map_entry:
        return st.dictionaries(_TEXTS, _value(found.message_type.fields_by_name["value"]), max_size=2)
    one = _SCALARS[found.type] if found.message_type is None else values(found.message_type)
    return st.lists(one, max_size=2) if found.is_repeated else one


def plain(message: Any) -> dict[str, Any]:
    """A generated message as the client's `to_dict` is to give it."""
    found = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        is_message = each.message_type is not None
        if is_message and each.message_type.GetOptions().map_entry:
            found[each.name] = {key: finite(one) for key, one in value.items()}
        elif each.is_repeated:
            found[each.name] = [plain(one) if is_message else finite(one) for one in value]
        elif is_message:
            missing = each.name in {"now", "start"} and not message.HasField(each.name)
            found[each.name] = None if missing else plain(value)
        else:
            optional = each.containing_oneof is not None and not message.HasField(each.name)
            found[each.name] = None if optional else finite(value)
    return found


def finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@pytest.mark.parametrize("name", _CASES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_message_is_read_and_written_as_protobuf_does(name: str, data: st.DataObject) -> None:
    # given any message, as the controller sends it
    message = getattr(pb, name)(**data.draw(values(descriptor(name))))
    # when the client reads it
    found = MESSAGES[name].decode(message.SerializeToString())
    # then it says the same, also as JSON, and what the client writes says the same to protobuf
    assert found.to_dict() == plain(message)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert plain(getattr(pb, name).FromString(found.encode())) == plain(message)
    assert MESSAGES[name].decode(found.encode()) == found
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found


# --- answers of later controllers, and damaged ones


def test_fields_of_a_later_controller_are_ignored() -> None:
    later = (
        field(900, BYTES, b"new")
        + field(901, VARINT, 7)
        + field(902, FIXED64, bytes(8))
        + field(903, FIXED32, bytes(4))
    )
    nested = field(1, BYTES, field(1, BYTES, b"12") + later)

    assert jobs.Queue.decode(later + nested + later).entries == (jobs.QueueEntry(job_id="12"),)


def test_what_is_not_known_is_null_in_json() -> None:
    rows = slowdown_rows.SlowdownRows(models=(slowdown_rows.ModelRow("resnet", 0.1, math.nan, math.inf),))
    (read,) = slowdown_rows.SlowdownRows.decode(rows.encode()).models
    assert math.isnan(read.bytes)
    assert json.loads(json.dumps(rows.to_dict(), allow_nan=False))["models"] == [
        {"model": "resnet", "compute_s": 0.1, "bytes": None, "overlap": None}
    ]


def test_a_field_that_has_changed_its_wire_type_is_as_good_as_left_out() -> None:
    assert jobs.QueueEntry.decode(field(1, VARINT, 12) + field(2, BYTES, b"ann")) == jobs.QueueEntry(user="ann")


def test_states_of_a_later_controller_are_kept() -> None:
    found = jobs.QueueEntry.decode(field(5, BYTES, b"parked"))

    assert (found.state, str(found.state), found.state.known) == ("parked", "parked", False)
    assert found.state == JobState("parked") != JobState.WAITING
    assert found.to_dict()["state"] == "parked"
    assert len({found.state, JobState("parked")}) == 1
    assert copy.deepcopy(found) == pickle.loads(pickle.dumps(found)) == found
    assert list(JobState) == list(JobState.__members__.values())


def test_states_are_texts() -> None:
    assert JobState("running") is JobState.RUNNING
    assert JobState.RUNNING == "running" and f"{JobState.RUNNING}" == str(JobState.RUNNING) == "running"
    assert JobState.RUNNING.known and not JobState.UNKNOWN.known
    assert jobs.Event().kind is EventKind.UNKNOWN


def damaged() -> Iterator[bytes]:
    whole = field(1, BYTES, field(1, BYTES, b"12"))
    yield whole[:-1]
    yield b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # a length that does not end
    yield b"\x0a\xff\xff\xff\xff\x0f"  # a length beyond the end
    yield varint(1 << 3 | 3)  # a group
    yield varint(0 << 3 | BYTES) + b"\0"  # the field 0
    yield field(1, BYTES, field(1, BYTES, b"\xff\xfe"))  # no UTF-8
    yield b"\x09abc"  # half a number
    yield b"\x80"


@pytest.mark.parametrize("data", list(damaged()))
def test_a_damaged_message_is_an_error_of_the_protocol(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="damaged"):
        jobs.Queue.decode(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error_of_the_protocol(data: bytes) -> None:
    for message in (status.Status, jobs.Explanation, profiles.JobMeasurements):
        try:
            message.decode(data)
        except ProtocolError:
            continue


# --- requests


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (requests.ListProfilesRequest(-1), "limit: -1 is not a whole number"),
        (requests.ListProfilesRequest(1 << 32), "limit: 4294967296 is not a whole number from 0 to 4294967295"),
        (requests.ListProfilesRequest(1.5), "limit: 1.5"),  # type: ignore[arg-type]
        (requests.ListProfilesRequest(True), "limit: True"),
        (requests.WhyRequest(12), "job_id: 12 is not a text"),  # type: ignore[arg-type]
        (requests.WhyRequest("\ud800"), "job_id: .* cannot be written as UTF-8"),
        (requests.PreemptRequest("1", within_s="soon"), "within_s: 'soon' is not a number"),  # type: ignore[arg-type]
        (requests.PreemptRequest("1", force="yes"), "force: 'yes'"),  # type: ignore[arg-type]
        (requests.ExportProfilesRequest(racks={"n1": 3}), "racks"),  # type: ignore[dict-item]
    ],
)
def test_a_request_that_makes_no_sense_names_the_argument(request_: Message, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        request_.encode()


def test_whole_numbers_of_other_libraries_are_whole_numbers() -> None:
    import numpy as np

    sent = requests.PreemptRequest("1", gpus=np.int64(4), within_s=np.float32(2.0))  # type: ignore[arg-type]

    assert pb.PreemptRequest.FromString(sent.encode()) == pb.PreemptRequest(job_id="1", gpus=4, within_s=2.0)
