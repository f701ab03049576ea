"""A message of the protocol as a dataclass. Each field says its number and its kind, which is all that reading and writing need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from math import isfinite
from typing import Any, TypeVar

from headway_client.answers.kinds import Kind
from headway_client.wire import protobuf

M = TypeVar("M", bound="Message")

_KIND = "headway"
_tables: dict[type, dict[int, dataclasses.Field[Any]]] = {}


class Message:
    """Base of all messages. Fields that a later controller adds are ignored, and fields that it leaves out have their defaults."""

    @classmethod
    def decode(cls: type[M], data: bytes) -> M:
        """Return the message in these bytes. Raises ProtocolError where they are not well-formed."""
        table = _table(cls)
        values: dict[str, Any] = {}
        for number, wire_type, raw in protobuf.fields(data):
            field = table.get(number)
            if field is not None:
                kind: Kind = field.metadata[_KIND]
                if wire_type == kind.wire_type:
                    values[field.name] = kind.add(values.get(field.name), raw)
        for field in table.values():
            if field.name in values:
                values[field.name] = field.metadata[_KIND].finish(values[field.name])
        return cls(**values)

    def encode(self) -> bytes:
        """Return the message as bytes. Raises InvalidRequestError for a value that the field cannot have."""
        return b"".join(
            protobuf.field(number, field.metadata[_KIND].wire_type, raw)
            for number, field in _table(type(self)).items()
            for raw in field.metadata[_KIND].encode(getattr(self, field.name), field.name)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the message as dicts, lists, texts and numbers, ready for JSON, with the names of the protocol.

        JSON has no NaN and no infinite numbers: they are None.
        """
        table = _table(type(self)).values()
        return {field.name: plain(getattr(self, field.name)) for field in table}


def plain(value: Any) -> Any:
    """Return a value of a message with dicts and lists in place of messages and tuples, and None for NaN and infinity."""
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        found: list[Any] = [plain(each) for each in value]
        return found
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def make(number: int, kind: Kind) -> Any:
    """Return the field of that number. Its default is the kind's."""
    return dataclasses.field(default_factory=kind.default, metadata={"number": number, _KIND: kind}, hash=kind.hashable)


def _table(cls: type) -> dict[int, dataclasses.Field[Any]]:
    """Return the fields of a message by number."""
    if cls not in _tables:
        fields: Any = cls
        _tables[cls] = {each.metadata["number"]: each for each in dataclasses.fields(fields) if _KIND in each.metadata}
    return _tables[cls]
