"""Exact conversion of columns of text to numbers: seconds become whole nanoseconds without floats.

Each function converts a column to an array of the same length. A text that it cannot convert raises `BadCellError`, which names the
row. Columns of plain digits, which most logs contain, are converted at once; all others are converted text by text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import numpy as np

from policies.model import BoolColumn, FloatColumn, IntColumn
from simulator.traces.trace import MAX_TIME_S, NOT_KNOWN, NS_PER_S

_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
"""Its repetitions are possessive, so that the time for a long text grows only with its length."""
_DECIMAL = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?", re.ASCII)
_MOST_DIGITS = 18
"""Any number of so many digits is less than 2^63."""
_MOST_AMOUNT = 2.0**53
"""Largest number up to which a float is exact; larger ones are not compared."""
MOST_GPUS = 10_000_000
"""More GPUs than any job requests; detects a column of bytes or milliseconds."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = "give YYYY-MM-DD HH:MM:SS, or seconds since 1970"
_NO_INSTANT = dict.fromkeys(("None", "NULL", "null", "NaN", "nan", "Unknown"), "")


_PARTS = "; `headway-sim trace convert --from fractional` rounds parts of GPUs up, or counts them in shares"
_OR_EMPTY = ", or leave it empty if it is not known"


class BadCellError(Exception):
    """A text that is not valid in its column. `row` counts from 0 in the given column."""

    def __init__(self, row: int, text: str, reason: str, mend: str) -> None:
        super().__init__(f"row {row}: {text!r} {reason}; {mend}")
        self.row = row
        self.text = text
        self.reason = reason
        self.mend = mend


class _NotANumberError(Exception):
    """The reason why a text is not a valid number, and how to correct it."""

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.mend = mend


def times_ns(texts: Sequence[str], *, zero: bool, missing: bool = False) -> IntColumn:
    """Convert seconds to nanoseconds; nine decimals are exact, more are rounded. `zero` accepts 0, `missing` an empty text (-1)."""
    wanted = ("give seconds, 0 or more" if zero else "give seconds, more than 0") + (_OR_EMPTY if missing else "")
    plain = _plain_ns(texts)
    if plain is not None and _within(plain, 0 if zero else 1, MAX_TIME_S * NS_PER_S):
        return plain

    def one(text: str) -> int:
        plain = _DECIMAL.fullmatch(text)
        nanoseconds = (
            int(plain[1]) * NS_PER_S + int((plain[2] or "0").ljust(9, "0")) if plain else _nanoseconds(text, wanted)
        )
        if nanoseconds > MAX_TIME_S * NS_PER_S:
            raise _NotANumberError("is more than 126 years", "give seconds, not milliseconds or nanoseconds")
        if nanoseconds < 0:
            raise _NotANumberError("is negative", wanted)
        if nanoseconds == 0 and not zero:
            raise _NotANumberError("is zero", wanted if missing else f"{wanted}, or leave the job out: it did no work")
        return nanoseconds

    return _each(texts, one, missing=missing, wanted=wanted)


def counts(texts: Sequence[str], *, of: str, missing: bool = False, most: int = MOST_GPUS) -> IntColumn:
    """Parse whole numbers of at least 1. `of` names the things, in the plural; `missing` accepts an empty text (-1)."""
    wanted = f"give a whole number of {of}, at least 1" + (_OR_EMPTY if missing else "")
    plain = _plain("\n".join(texts), len(texts))
    if plain is not None and _within(plain, 1, most):
        return plain

    def one(text: str) -> int:
        number = _number(text, wanted)
        if number != number.to_integral_value():
            parts = of == "GPUs" and number > 0
            raise _NotANumberError(f"is not a whole number of {of}", wanted + (_PARTS if parts else ""))
        if number < 1:
            none = number == 0 and of == "GPUs" and not missing
            mend = f"{wanted}, or leave out jobs without GPUs" if none else wanted
            raise _NotANumberError("is negative" if number < 0 else "is zero", mend)
        if number > most:
            raise _NotANumberError(f"is more than {most:,} {of}", wanted)
        return int(number)

    return _each(texts, one, missing=missing, wanted=wanted)


def flags(texts: Sequence[str], *, default: bool) -> BoolColumn:
    """Parse 0, 1, true, false in any case; an empty text is `default`."""
    words = {"0": False, "false": False, "1": True, "true": True, "": default}
    column = np.empty(len(texts), dtype=np.bool_)
    for row, text in enumerate(texts):
        value = words.get(text.strip().lower())
        if value is None:
            raise BadCellError(row, text, "is neither yes nor no", "give 0, 1, true or false")
        column[row] = value
    return column


def amounts(texts: Sequence[str]) -> FloatColumn:
    """Parse numbers for comparisons; NaN for any other text, and for numbers that no count or time of a log reaches."""
    column = np.empty(len(texts), dtype=np.float64)
    for row, text in enumerate(texts):
        try:
            column[row] = float(text)
        except ValueError:
            column[row] = np.nan
    column[np.abs(column) > _MOST_AMOUNT] = np.nan
    return column


def instants_ns(texts: Sequence[str]) -> IntColumn:
    """Parse dates with times (`2020-06-09 18:41:01`, also with T, a fraction, a zone; without a zone UTC is meant) or seconds since
    1970, as nanoseconds since 1970; -1 for texts that are empty, None, NULL, NaN or Unknown.
    """
    return _each([_NO_INSTANT.get(text, text) for text in texts], _instant, missing=True, wanted=_INSTANT)


def _instant(text: str) -> int:
    if _DECIMAL.fullmatch(text):
        return int(times_ns([text], zero=True)[0])
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise _NotANumberError("is not a date with time", _INSTANT) from None
    since = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - _EPOCH
    nanoseconds = (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000
    if nanoseconds < 0:
        raise _NotANumberError("is before 1970", _INSTANT)
    if nanoseconds >= 2**63:
        raise _NotANumberError("is after 2262", _INSTANT)
    return nanoseconds


def _plain_ns(texts: Sequence[str]) -> IntColumn | None:
    """Return the column in nanoseconds if every entry is plain digits with at most nine decimals, else None."""
    joined = "\n".join(texts)
    digits = _plain(joined.replace(".", ""), len(texts))
    if digits is None:
        return None
    data = np.frombuffer(joined.encode(), dtype=np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
    dots = np.flatnonzero(data == ord("."))
    rows = np.searchsorted(ends, dots)
    decimals = np.zeros(len(texts), dtype=np.int64)
    decimals[rows] = ends[rows] - dots - 1
    if (np.diff(rows) == 0).any() or int(decimals.max()) > 9:
        return None
    if int((digits // 10**decimals).max()) > MAX_TIME_S:
        return None
    return np.asarray(digits * 10 ** (9 - decimals), dtype=np.int64)


def _plain(joined: str, rows: int) -> IntColumn | None:
    """Return the column, one entry per line, if every entry is plain digits."""
    if not joined.isascii() or joined.startswith("\n") or joined.endswith("\n") or "\n\n" in joined:
        return None
    data = np.frombuffer(joined.encode(), dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    digits = np.count_nonzero((data >= ord("0")) & (data <= ord("9")))
    longest = int(np.diff(ends, prepend=-1, append=len(data)).max()) - 1 if len(data) else 0
    if not data.size or digits + len(ends) != len(data) or len(ends) != rows - 1 or longest > _MOST_DIGITS:
        return None
    return np.fromstring(joined, dtype=np.int64, sep="\n")


def _within(column: IntColumn, least: int, most: int) -> bool:
    return int(column.min()) >= least and int(column.max()) <= most


def _each(texts: Sequence[str], one: Callable[[str], int], *, missing: bool, wanted: str) -> IntColumn:
    column = np.empty(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        stripped = text.strip()
        if not stripped:
            if not missing:
                raise BadCellError(row, text, "is empty", wanted)
            column[row] = NOT_KNOWN
            continue
        try:
            column[row] = one(stripped)
        except _NotANumberError as problem:
            raise BadCellError(row, text, problem.reason, problem.mend) from None
    return column


def _nanoseconds(text: str, wanted: str) -> int:
    """Parse any other notation of seconds, rounded to the nearest nanosecond."""
    scaled = _number(text, wanted) * NS_PER_S
    if abs(scaled) > 10 * MAX_TIME_S * NS_PER_S:
        return (MAX_TIME_S * NS_PER_S + 1) * (1 if scaled > 0 else -1)
    rounded = int(scaled.to_integral_value(rounding=ROUND_HALF_EVEN))
    return rounded or (-1 if scaled < 0 else 0)


def _number(text: str, wanted: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        word = text.lower().lstrip("+-")
        if word in {"nan", "na", "n/a", "null", "none"}:
            raise _NotANumberError("is not a number (a missing value)", wanted)
        if word in {"inf", "infinity"}:
            raise _NotANumberError("is infinite", wanted)
        if re.fullmatch(r"[0-9]+,[0-9]+", word):
            raise _NotANumberError("is written with a comma", wanted + ", with a decimal point")
        raise _NotANumberError("is not a number", wanted)
    try:
        return Decimal(text)
    except InvalidOperation:  # more digits than decimal can hold
        raise _NotANumberError("is not a number", wanted) from None
