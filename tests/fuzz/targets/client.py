"""Answers of a controller, as headway_client reads them in users' own programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as Generated
from headway_client.answers.jobs import Event, Explanation, Queue
from headway_client.answers.message import Message
from headway_client.answers.preemptions import PreemptionList, PreemptionRecord
from headway_client.answers.profiles import JobMeasurements, ProfileList, RequestedProfile
from headway_client.answers.reports import JobSummary
from headway_client.answers.slowdown_rows import SlowdownRows
from headway_client.answers.status import PolicyInfo, Status
from headway_client.answers.usage import Usage
from headway_client.errors import ProtocolError

from protos.headway.v1 import admin_pb2
from tests.fuzz.target import BrokenPromiseError, Target

_ANSWERS: tuple[type[Message], ...] = (
    *(Status, Queue, Explanation, Event, PreemptionRecord, PreemptionList, PolicyInfo, Usage),
    *(ProfileList, JobMeasurements, RequestedProfile, JobSummary, SlowdownRows),
)
_TEXT, _REAL, _FLAG, _NUMBER = "n1:4", 1.5, True, 300


def _filled(message: Generated) -> Generated:
    """Set every field of a message of the controller's own protocol, two rows for each list."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_table(getattr(message, field.name), field.message_type)
        elif field.message_type is not None and field.is_repeated:
            for _ in range(2):
                _filled(getattr(message, field.name).add())
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            _filled(getattr(message, field.name))
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(field)] * 2)
        else:
            setattr(message, field.name, _value(field))
    return message


def _fill_table(table: Any, entry: Any) -> None:
    value = entry.fields_by_name["value"]
    if value.message_type is None:
        table["n1"] = _value(value)
    else:
        _filled(table["n1"])


def _value(field: Any) -> str | float | bool | int:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return _TEXT
        case FieldDescriptor.TYPE_DOUBLE:
            return _REAL
        case FieldDescriptor.TYPE_BOOL:
            return _FLAG
        case _:
            return _NUMBER


def _corpus() -> list[bytes]:
    return [_filled(getattr(admin_pb2, answer.__name__)()).SerializeToString() for answer in _ANSWERS]


def _read(data: bytes, _folder: Path) -> object:
    """Read the bytes as each answer. What is read can be printed as JSON, and written and read again."""
    found: list[Message] = []
    refused: ProtocolError | None = None
    for answer in _ANSWERS:
        try:
            found.append(answer.decode(data))
        except ProtocolError as error:
            refused = error
    for message in found:
        shown = message.to_dict()
        json.dumps(shown, allow_nan=False)
        if type(message).decode(message.encode()).to_dict() != shown:
            raise BrokenPromiseError(f"{type(message).__name__}: another value after writing and reading it")
    if refused is not None and not found:
        raise refused
    return found


CLIENT = (
    Target(
        "client-answers",
        "answers of a controller to headway_client",
        "protobuf",
        _corpus,
        _read,
        (ProtocolError,),
        cost=20,
    ),
)
