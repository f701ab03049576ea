"""Fields of protobuf messages as bytes, and back. Groups and packed lists are not needed by the protocol, and are not there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Union

from headway_client.errors import ProtocolError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_FIXED = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT = 10
_LONG = 0x80
"""A byte from here on is not the last one of its number."""

Raw = Union[int, bytes]
"""A field's value on the wire: a number for VARINT, else its bytes."""


def fields(message: bytes) -> Iterator[tuple[int, int, Raw]]:
    """Yield number, wire type and value of each field. Raises ProtocolError where the message is not well-formed."""
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        if tag < _LONG:  # most numbers are short, and a queue has a hundred thousand fields
            at += 1
        else:
            tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ProtocolError("the answer is damaged: a field has the number 0")
        if wire_type == VARINT:
            value, at = _varint(message, at)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            if at < end and message[at] < _LONG:
                length = message[at]
                at += 1
            else:
                length, at = _varint(message, at)
        elif wire_type in _FIXED:
            length = _FIXED[wire_type]
        else:
            raise ProtocolError(f"the answer is damaged: field {number} has the unknown wire type {wire_type}")
        if length > end - at:
            raise ProtocolError(f"the answer is damaged: field {number} is longer than the message around it")
        yield number, wire_type, message[at : at + length]
        at += length


def field(number: int, wire_type: int, value: Raw) -> bytes:
    """Return one field as bytes."""
    tag = varint(number << 3 | wire_type)
    if isinstance(value, int):
        return tag + varint(value)
    return tag + (varint(len(value)) if wire_type == BYTES else b"") + value


def varint(value: int) -> bytes:
    """Return a number from 0 to 2**64 - 1 in groups of seven bits, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def double(value: float) -> bytes:
    """Return a floating-point number as a FIXED64."""
    return struct.pack("<d", value)


def to_double(raw: bytes) -> float:
    """Return the floating-point number of a FIXED64."""
    (value,) = struct.unpack("<d", raw)
    return float(value)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise ProtocolError("the answer is damaged: a number does not end")
