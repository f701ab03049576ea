"""Slurm's short form of node lists: "n[1-3,07],gpu[01-02]x[1-4]"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, product

_MOST_NAMES = 200_000
_PART = re.compile(r"(?:[^,\[\]\s]+|\[[0-9,-]+\])+")
_PIECE = re.compile(r"\[[^\]]*\]|[^\[]+")
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


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


def fold(names: Sequence[str]) -> str:
    """The short form of these names: `expand` of it gives them back, in their order."""
    parts = []
    for prefix, group in groupby(map(_split, names), key=lambda name: name[0] if name[1] else None):
        members = list(group)
        if prefix is None:
            parts += [name for name, _ in members]
            continue
        ranges = _ranges([number for _, number in members])
        alone = len(members) == 1
        parts.append(f"{prefix}{ranges}" if alone else f"{prefix}[{ranges}]")
    return ",".join(parts)


def _split(name: str) -> tuple[str, str]:
    """A name, and the number at its end; '' where it has none."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def _ranges(numbers: Sequence[str]) -> str:
    """ "08", "09", "10", "12" is "08-10,12". Within a range, numbers are padded to the width of its first."""
    spans: list[tuple[str, str]] = []
    for number in numbers:
        if spans and number == str(int(spans[-1][1]) + 1).zfill(len(spans[-1][0])):
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ",".join(first if first == last else f"{first}-{last}" for first, last in spans)


def _numbers(ranges: str, text: str) -> list[str]:
    return [number for item in ranges.split(",") for number in _range(item, text)]


def _range(item: str, text: str) -> Iterator[str]:
    first, _, last = item.partition("-")
    last = last or first
    if not first.isdecimal() or not last.isdecimal() or not 0 <= int(last) - int(first) <= _MOST_NAMES:
        raise ValueError(f"{text[:200]!r} is no list of nodes: {item!r} is no range")
    return (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
