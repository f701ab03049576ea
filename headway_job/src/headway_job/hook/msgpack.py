"""The part of msgpack that the job socket uses: maps with text keys, text, numbers, booleans, None, lists.

Written here, since nothing may be imported into a user's program that torch has not loaded already.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Tuple

_MAX_DEPTH = 8
_FLOAT64 = struct.Struct(">d")

_FIXED = {
    0xCA: struct.Struct(">f"),
    0xCB: _FLOAT64,
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
"""First byte of a number -> layout of the other bytes."""
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
"""First byte -> size of the length that follows."""


def pack(value: Any) -> bytes:
    """Return the bytes of a value. Raises TypeError or ValueError for values that this socket does not use."""
    out = bytearray()
    _put(out, value)
    return bytes(out)


def _put(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0xC0)
    elif value is True:
        out.append(0xC3)
    elif value is False:
        out.append(0xC2)
    elif isinstance(value, int):
        _put_int(out, value)
    elif isinstance(value, float):
        out.append(0xCB)
        out += _FLOAT64.pack(value)
    elif isinstance(value, str):
        data = value.encode("utf-8", "replace")
        _put_length(out, len(data), (0xA0, 32), ((0xD9, 1), (0xDA, 2), (0xDB, 4)))
        out += data
    elif isinstance(value, (list, tuple)):
        _put_length(out, len(value), (0x90, 16), ((0xDC, 2), (0xDD, 4)))
        for item in value:
            _put(out, item)
    elif isinstance(value, dict):
        _put_length(out, len(value), (0x80, 16), ((0xDE, 2), (0xDF, 4)))
        for key, item in value.items():
            _put(out, key)
            _put(out, item)
    else:
        raise TypeError(f"{type(value).__name__} is not used on this socket")


def _put_int(out: bytearray, value: int) -> None:
    if 0 <= value < 128:
        out.append(value)
    elif -32 <= value < 0:
        out.append(value & 0xFF)
    elif value >= 0:
        _put_sized(out, value, False, ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)))
    else:
        _put_sized(out, value, True, ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)))


def _put_sized(out: bytearray, value: int, signed: bool, sizes: Tuple[Tuple[int, int], ...]) -> None:
    for first, size in sizes:
        half = 1 << (8 * size - 1)
        if value < 2 * half and (not signed or value >= -half):
            out.append(first)
            out += value.to_bytes(size, "big", signed=signed)
            return
    raise ValueError("the number is too large")


def _put_length(out: bytearray, length: int, short: Tuple[int, int], sizes: Tuple[Tuple[int, int], ...]) -> None:
    first, below = short
    if length < below:
        out.append(first | length)
    else:
        _put_sized(out, length, False, sizes)


def unpack(packet: bytes) -> Dict[str, Any]:
    """Return the map in a packet. Raises ValueError for anything else, as a socket may deliver anything."""
    try:
        value, end = _take(packet, 0, 0)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise ValueError("the packet ends within a value") from None
    if end != len(packet) or not isinstance(value, dict):
        raise ValueError("the packet is not one map")
    return value


def _take(data: bytes, at: int, depth: int) -> Tuple[Any, int]:
    if depth > _MAX_DEPTH:
        raise ValueError("values are nested too deeply")
    first = data[at]
    at += 1
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 256), at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _FIXED:
        layout = _FIXED[first]
        return layout.unpack_from(data, at)[0], at + layout.size
    return _take_long(data, at, first, depth)


def _take_long(data: bytes, at: int, first: int, depth: int) -> Tuple[Any, int]:
    """Read a value with a length, which is in the first byte itself or follows it."""
    if first < 0xC0:
        sizes = _MAPS if first < 0x90 else _LISTS if first < 0xA0 else _TEXTS
        length = first & (0x1F if sizes is _TEXTS else 0x0F)
    else:
        for sizes in (_TEXTS, _LISTS, _MAPS):
            if first in sizes:
                length, at = _take_length(data, at, sizes[first])
                break
        else:
            raise ValueError("a type that is not used on this socket")
    if sizes is _TEXTS:
        return _take_text(data, at, length)
    return _take_list(data, at, length, depth) if sizes is _LISTS else _take_map(data, at, length, depth)


def _take_length(data: bytes, at: int, size: int) -> Tuple[int, int]:
    if at + size > len(data):
        raise IndexError
    length = int.from_bytes(data[at : at + size], "big")
    if length > len(data):
        raise ValueError("a value is longer than the packet")  # before memory of that length is allocated
    return length, at + size


def _take_text(data: bytes, at: int, length: int) -> Tuple[str, int]:
    if at + length > len(data):
        raise IndexError
    return data[at : at + length].decode("utf-8"), at + length


def _take_list(data: bytes, at: int, length: int, depth: int) -> Tuple[List[Any], int]:
    items = []
    for _ in range(length):
        item, at = _take(data, at, depth + 1)
        items.append(item)
    return items, at


def _take_map(data: bytes, at: int, length: int, depth: int) -> Tuple[Dict[str, Any], int]:
    items = {}
    for _ in range(length):
        key, at = _take(data, at, depth + 1)
        if not isinstance(key, str):
            raise ValueError("a key is not text")  # noqa: TRY004 - the packet is wrong, not the caller
        items[key], at = _take(data, at, depth + 1)
    return items, at
