"""Changes that need no knowledge of the format: bits, pieces, lengths, and pieces of two inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[Random, bytes, Sequence[bytes]], bytes]

_LENGTHS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_ODD = (
    *(b"\0", b"\xff", b"\x80", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b"\n", b"\r\n", b"\x85", b"\x1b[2J", b"%s%n", b"'\"", b"\\", b"\xd9\xa3", b"\xc2\xb2"),
)
"""Bytes that readers often handle wrongly: NUL, invalid UTF-8, line ends of other kinds, quotes, digits that are not ASCII."""


def flip_bits(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(data or b"\0")
    for _ in range(dice.randint(1, 8)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Keep only the beginning, or leave a piece out."""
    begin, end = _piece(dice, data)
    return data[:begin] if dice.random() < 0.5 else data[:begin] + data[end:]


def repeat(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Repeat a piece, sometimes thousands of times."""
    begin, end = _piece(dice, data)
    times = dice.choice((2, 2, 2, 2, 3, 3, 10, 10, 100, 5000))
    return data[:begin] + data[begin:end] * times + data[end:]


def splice(dice: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Put a piece of another genuine input into this one."""
    other = dice.choice(others)
    begin, end = _piece(dice, data)
    first, last = _piece(dice, other)
    return data[:begin] + other[first:last] + data[end:]


def insert(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Insert odd bytes."""
    at = dice.randint(0, len(data))
    return data[:at] + dice.choice(_ODD) * dice.choice((1, 1, 1, 4, 64)) + data[at:]


def write_length(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Overwrite some bytes with a number that may be a length, an offset or a version."""
    width = dice.choice((1, 2, 4, 8))
    value = dice.choice(_LENGTHS) & ((1 << (8 * width)) - 1)
    at = dice.randint(0, len(data))
    return data[:at] + value.to_bytes(width, dice.choice(("big", "little"))) + data[at + width :]


RAW: tuple[Mutator, ...] = (flip_bits, cut, repeat, splice, insert, write_length)


def _piece(dice: Random, data: bytes) -> tuple[int, int]:
    """Return begin and end of a piece, which is short most of the time."""
    begin = dice.randint(0, len(data))
    length = dice.choice((1, 4, 16, 64, len(data)))
    return begin, min(len(data), begin + dice.randint(0, max(length, 1)))
