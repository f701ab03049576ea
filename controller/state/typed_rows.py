"""Types of the values in the journal's rows. Apart from their decoding, so that the forecasting process need not import that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

MOST_NUMBER = 2**53
"""Larger numbers are neither counts nor times."""


def well_typed(rows: Iterable[tuple[Any, ...]], *kinds: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows whose values have these kinds: "text", "number" (a count or a time), with "?" when NULL is allowed."""
    tests = [(_TESTS[kind.rstrip("?")], kind.endswith("?")) for kind in kinds]
    for row in rows:
        if all((value is None and may_lack) or test(value) for value, (test, may_lack) in zip(row, tests, strict=True)):
            yield row


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < MOST_NUMBER


_TESTS: dict[str, Callable[[object], bool]] = {"text": lambda value: isinstance(value, str), "number": _is_number}
