"""Read TOML and JSON of other programs, within bounds of size, nesting and digits. The result is a value or DocumentError.

Python's readers raise RecursionError for deep nesting and ValueError for very long numbers. The time of tomllib grows with the
square of the dots in one key. They return whole numbers of thousands of digits, for which `float` and `math.isfinite` raise
OverflowError: check numbers of documents with `is_number` and `is_whole`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

MOST_BYTES = 1 << 20
"""Largest file of settings."""
_MOST_DOTS = 64
_DOTTED = re.compile(rf"(?<![\w\"'.-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{_MOST_DOTS}}}")
_MOST_REASON = 300
_LARGEST = sys.float_info.max


class DocumentError(ValueError):
    """A document cannot be read. The text says why, in a few printable words."""


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a regular file; it never waits for a pipe. Raises OSError and DocumentError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DocumentError("it is not a regular file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise DocumentError(f"it has more than {most_bytes:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DocumentError(f"it is not UTF-8 text (byte {error.start})") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table in the text. Raises DocumentError."""
    if _DOTTED.search(text):
        raise DocumentError(f"a name has more than {_MOST_DOTS} parts")
    found: dict[str, Any] = _parsed(lambda: tomllib.loads(text))
    return found


def parse_json(text: str | bytes) -> Any:
    """Return the value in the text. Raises DocumentError."""
    return _parsed(lambda: json.loads(text))


def is_version(found: object, version: int) -> bool:
    """Return whether a document says exactly this version: True and 1.0 equal 1 in Python, and are not written by Headway."""
    return type(found) is int and found == version


def is_number(value: object, low: float = -_LARGEST, high: float = _LARGEST) -> TypeGuard[int | float]:
    """Return whether the value is a number from `low` to `high`; by default, one that is finite as a float.

    True and NaN are no numbers.
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def is_whole(value: object, low: int, high: int) -> TypeGuard[int]:
    """Return whether the value is a whole number from `low` to `high`. True and 1.0 are no whole numbers."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def printable(text: str) -> str:
    """Return text of another program as one line without control characters, so that it cannot act on a terminal or a log."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


def short(text: object) -> str:
    """Return text of other programs in a form for messages: printable, and cut off after some 300 characters."""
    shown = "".join(each if each.isprintable() else "?" for each in str(text)[: _MOST_REASON + 1])
    return shown if len(shown) <= _MOST_REASON else f"{shown[:_MOST_REASON]}..."


def _parsed(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError as error:
        raise DocumentError("it is nested too deeply") from error
    except ValueError as error:  # TOML's and JSON's errors, and numbers of too many digits
        raise DocumentError(short(error)) from error
