"""Fields of messages, for their dataclasses. Each function takes the field's number, and says by its type what the field holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from headway_client.answers.kinds import Flag, Many, Maybe, Number, Real, Sub, Table, Text
from headway_client.answers.message import Message, make
from headway_client.words import Word

M = TypeVar("M", bound=Message)
W = TypeVar("W", bound=Word)

_U32, _U64, _REAL = Number(32), Number(64), Real()


def u32(number: int) -> int:
    """Return a field: a whole number of 32 bits."""
    found: int = make(number, _U32)
    return found


def u64(number: int) -> int:
    """Return a field: a whole number of 64 bits."""
    found: int = make(number, _U64)
    return found


def real(number: int) -> float:
    """Return a field: a floating-point number."""
    found: float = make(number, _REAL)
    return found


def flag(number: int) -> bool:
    """Return a field: true or false."""
    found: bool = make(number, Flag())
    return found


def text(number: int) -> str:
    """Return a field: a text."""
    found: str = make(number, Text())
    return found


def word(number: int, kind: type[W]) -> W:
    """Return a field: a word of an open enumeration."""
    found: W = make(number, Text(kind))
    return found


def sub(number: int, message: type[M]) -> M:
    """Return a field: a message that is always there."""
    found: M = make(number, Sub(message))
    return found


def maybe_u32(number: int) -> int | None:
    """Return a field: a whole number of 32 bits; None = left out."""
    found: int | None = make(number, Maybe(_U32))
    return found


def maybe_u64(number: int) -> int | None:
    """Return a field: a whole number of 64 bits; None = left out."""
    found: int | None = make(number, Maybe(_U64))
    return found


def maybe_real(number: int) -> float | None:
    """Return a field: a floating-point number; None = left out."""
    found: float | None = make(number, Maybe(_REAL))
    return found


def maybe_sub(number: int, message: type[M]) -> M | None:
    """Return a field: a message; None = left out."""
    found: M | None = make(number, Maybe(Sub(message)))
    return found


def texts(number: int) -> tuple[str, ...]:
    """Return a field: texts."""
    found: tuple[str, ...] = make(number, Many(Text()))
    return found


def many(number: int, message: type[M]) -> tuple[M, ...]:
    """Return a field: messages."""
    found: tuple[M, ...] = make(number, Many(Sub(message)))
    return found


def text_table(number: int) -> Mapping[str, str]:
    """Return a field: texts by name."""
    found: Mapping[str, str] = make(number, Table(Text()))
    return found


def real_table(number: int) -> Mapping[str, float]:
    """Return a field: floating-point numbers by name."""
    found: Mapping[str, float] = make(number, Table(_REAL))
    return found
