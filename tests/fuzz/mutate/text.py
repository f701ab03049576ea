"""Changes of text: numbers, words, lines and nesting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from tests.fuzz.mutate.raw import Mutator

NUMBERS = (
    *("0", "-0", "-1", "1", "4096", "65536", "4000000", "2147483648", "4294967295", "9223372036854775807"),
    *("18446744073709551616", "1e308", "1e999", "-1e999", "nan", "NaN", "inf", "-Infinity", "0x10", "1_000", "+5", "1.5"),
    *(".", "", "٣", "²", "9" * 400, "9" * 5000),
)  # fmt: skip
_WORDS = (
    *("(null)", "None", "N/A", "Unknown", "UNLIMITED", "INVALID", "true", "", " ", "=", ",", ":", "*", "~", "[", "]", "-"),
    *("[0-", "n[1-200000]", "n[0-9][0-9][0-9]", "0-4000000", "IDX:0-4000000", "a" * 300, "\\", '"', "'", "#"),
    *("\u2028", "\x85", "\x0b", "\x00"),
)  # fmt: skip
_NUMBER = re.compile(rb"[0-9]++")
_WORD = re.compile(rb"[^\s=,:;\[\](){}\"]++")
_PAIR = re.compile(rb"(?<![\w./:-])[\w./:-]++\s*+=\s*+\S*+")


def change_number(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Replace a number."""
    return _replaced(dice, data, _NUMBER, dice.choice(NUMBERS).encode())


def change_word(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Replace a word."""
    return _replaced(dice, data, _WORD, dice.choice(_WORDS).encode())


def exchange_pair(dice: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Replace one `key=value` by another one of a genuine input."""
    found = _some(dice, dice.choice(others), _PAIR)
    return data if found is None else _replaced(dice, data, _PAIR, found[0])


def move_lines(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Drop, repeat or exchange lines."""
    lines = data.split(b"\n")
    at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case _:
            lines[at : at + 1] = [lines[at]] * dice.choice((2, 10, 300))
    return b"\n".join(lines)


def nest(dice: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Open very many brackets, or write a very long run of one character."""
    at = dice.randint(0, len(data))
    run = dice.choice((b"[", b"{", b"(", b'{"a":', b"[[", b" ", b"a.", b"=", b",", b"\\", b'"', b" [", b"a", b"0"))
    return data[:at] + run * dice.choice((10, 10, 200, 200, 3000, 20_000)) + data[at:]


TEXT: tuple[Mutator, ...] = (change_number, change_number, change_word, change_word, exchange_pair, move_lines, nest)


def _replaced(dice: Random, data: bytes, pattern: re.Pattern[bytes], text: bytes) -> bytes:
    found = _some(dice, data, pattern)
    return data if found is None else data[: found.start()] + text + data[found.end() :]


def _some(dice: Random, data: bytes, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """Return the match behind a random place: listing all matches would cost more than reading the input."""
    return pattern.search(data, dice.randint(0, len(data))) or pattern.search(data)
