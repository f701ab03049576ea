"""Changes of a protobuf message on the wire, without its description: fields are repeated, dropped, renumbered, or changed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.fuzz.mutate.raw import RAW, Mutator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NUMBERS = (0, 1, 2, 3, 127, 128, 4096, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
_DOUBLES = (0.0, -0.0, -1.0, 1e-308, 1e308, float("nan"), float("inf"), float("-inf"))
_TEXTS = (b"", b"\0", b"\xff\xfe", b"a" * 5000, b"\x1b[2J", "٣".encode(), b"/../..", b"\n" * 300)
_DEEPEST = 4


class Field(NamedTuple):
    """One field: its number, its wire type, and its bytes (a varint: as eight bytes)."""

    number: int
    kind: int
    value: bytes


def change_field(dice: Random, data: bytes, others: Sequence[bytes], depth: int = 0) -> bytes:
    """Change one field, perhaps of a message within."""
    fields = parse(data)
    if not fields:
        return dice.choice(RAW)(dice, data, others)
    at = dice.randrange(len(fields))
    field = fields[at]
    match dice.randrange(8):
        case 0:
            del fields[at]
        case 1:
            fields.insert(dice.randint(0, len(fields)), field)
        case 2:
            fields[at : at + 1] = [field] * dice.choice((2, 50, 3000))
        case 3:
            fields[at] = field._replace(number=dice.choice((1, 2, 3, 5, 16, 100, 2**29 - 1)))
        case _:
            fields[at] = field._replace(value=_changed(dice, field, others, depth))
    return render(fields)


def nest(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Put the message into itself, up to thousands of times."""
    number = dice.choice((1, 2, 3, 4, 5))
    for _ in range(dice.choice((2, 50, 150))):
        data = _tag(number, _BYTES) + _varint(len(data)) + data
    return data


PROTOBUF: tuple[Mutator, ...] = (change_field, change_field, change_field, change_field, nest)


def _changed(dice: Random, field: Field, others: Sequence[bytes], depth: int) -> bytes:
    match field.kind:
        case 0:
            return dice.choice(_NUMBERS).to_bytes(8, "little")
        case 1:
            return struct.pack("<d", dice.choice(_DOUBLES))
        case 5:
            return dice.choice(_NUMBERS).to_bytes(8, "little")[:4]
    if depth < _DEEPEST and dice.random() < 0.6:
        return change_field(dice, field.value, others, depth + 1)
    if dice.random() < 0.5 and len(field.value) >= 8:  # packed numbers
        at = dice.randrange(len(field.value) // 8) * 8
        return field.value[:at] + struct.pack("<d", dice.choice(_DOUBLES)) + field.value[at + 8 :]
    return dice.choice(_TEXTS)


def parse(data: bytes) -> list[Field]:
    """Return the fields; none when the bytes are no message."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _take_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, end = _take_varint(data, at)
            piece = (value & (2**64 - 1)).to_bytes(8, "little")
        elif kind == _BYTES:
            length, at = _take_varint(data, at)
            end = at + length
            piece = data[at:end]
        elif kind in (_FIXED32, _FIXED64):
            end = at + (4 if kind == _FIXED32 else 8)
            piece = data[at:end]
        else:
            return []
        if not number or at < 0 or end > len(data) or end < 0:
            return []
        fields.append(Field(number, kind, piece))
        at = end
    return fields


def render(fields: Sequence[Field]) -> bytes:
    """Return the message."""
    pieces = []
    for number, kind, value in fields:
        pieces.append(_tag(number, kind))
        if kind == _VARINT:
            pieces.append(_varint(int.from_bytes(value, "little")))
        else:
            pieces += [_varint(len(value)), value] if kind == _BYTES else [value]
    return b"".join(pieces)


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _take_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; a negative end when it does not end."""
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
    return 0, len(data) + 1
