"""Slurm's short form of node lists: "n[1-3,07],gpu[01-02]x[1-4]"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod

from controller.base.errors import SlurmReplyError

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PART = re.compile(r"(?:[^,\[\]]+|\[[^\[\]]*\])+")
_PIECE = re.compile(r"[^\[\]]+|\[[^\[\]]*\]")
_MOST_NODES = 200_000
_MOST_TASKS = 4_000_001
"""The largest MaxArraySize that Slurm accepts."""
_MOST_DIGITS = 18


@lru_cache(maxsize=8192)
def expand_nodes(text: str) -> tuple[str, ...]:
    """Names in the order in which Slurm lists them. Raises SlurmReplyError on anything that is not a node list."""
    if text in {"", "(null)", "None assigned"}:
        return ()
    names: list[str] = []
    position = 0
    for match in _PART.finditer(text):
        if match.start() != position or (position and text[position - 1] != ","):
            break
        names.extend(_expand_part(match.group(), text))
        position = match.end() + 1
    if position != len(text) + 1 or len(names) > _MOST_NODES:
        raise SlurmReplyError(f"not a list of nodes: {text[:200]!r}")
    return tuple(names)


def _expand_part(part: str, text: str) -> Iterator[str]:
    choices = [
        list(_numbers(piece[1:-1], text)) if piece.startswith("[") else [piece] for piece in _PIECE.findall(part)
    ]
    if prod(map(len, choices)) > _MOST_NODES:
        raise SlurmReplyError(f"not a list of nodes: {text[:200]!r}")
    return ("".join(combination) for combination in product(*choices))


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for item in ranges.split(","):
        first, dash, last = item.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise SlurmReplyError(f"not a list of nodes: {text[:200]!r}")
        if not dash:
            yield first
            continue
        if int(last) - int(first) > _MOST_NODES:
            raise SlurmReplyError(f"not a list of nodes: {text[:200]!r}")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


@lru_cache(maxsize=4096)
def expand_indices(text: str) -> tuple[int, ...]:
    """Array task ids "0,2-3,10-20:5"; a trailing "%5" (tasks at once) is no part of them."""
    numbers: list[int] = []
    for item in text.partition("%")[0].split(","):
        span, _, step = item.partition(":")
        first, dash, last = span.partition("-")
        understood = (
            _is_number(first) and _is_number(last or first) and _is_number(step or "1") and bool(dash) == bool(last)
        )
        tasks = range(int(first), int(last or first) + 1, int(step or 1) or 1) if understood else range(0)
        if not understood or len(numbers) + len(tasks) > _MOST_TASKS or tasks.start + len(tasks) > _MOST_TASKS:
            raise SlurmReplyError(
                f"not a list of array tasks: {text[:200]!r} (cut off by SLURM_BITSTR_LEN? Headway sets it to 0)"
            )
        numbers.extend(tasks)
    return tuple(numbers)


def _is_number(text: str) -> bool:
    """Return whether the text is a number that Slurm could have printed."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS
