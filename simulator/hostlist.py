"""Slurm's short form of node lists: "n[1-3,07],gpu[01-02]x[1-4]"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

_MOST_NAMES = 200_000
_PART = re.compile(r"(?:[^,\[\]\s]+|\[[0-9,-]+\])+")
_PIECE = re.compile(r"\[[^\]]*\]|[^\[]+")


def expand(text: str) -> tuple[str, ...]:
    """The names, in the order in which they stand. Raises ValueError on what is no list of nodes."""
    names: list[str] = []
    at = 0
    while at <= len(text):
        part = _PART.match(text, at)
        if not part or text[part.end() : part.end() + 1] not in {"", ","}:
            raise ValueError(f"{text[:200]!r} is no list of nodes")
        choices = [_numbers(piece[1:-1], text) if piece[0] == "[" else [piece] for piece in _PIECE.findall(part[0])]
        for combination in product(*choices):
            names.append("".join(combination))
            if len(names) > _MOST_NAMES:
                raise ValueError(f"{text[:200]!r} names more than {_MOST_NAMES} nodes")
        at = part.end() + 1
    return tuple(names)


def _numbers(ranges: str, text: str) -> list[str]:
    return [number for item in ranges.split(",") for number in _range(item, text)]


def _range(item: str, text: str) -> Iterator[str]:
    first, _, last = item.partition("-")
    last = last or first
    if not first.isdecimal() or not last.isdecimal() or not 0 <= int(last) - int(first) <= _MOST_NAMES:
        raise ValueError(f"{text[:200]!r} is no list of nodes: {item!r} is no range")
    return (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
